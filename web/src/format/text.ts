/** The part of an id in which two differ: ids begin with their time. */
export function shortId(id: string): string {
  return id.length > 13 ? id.slice(-8) : id;
}

/** `1 job`, `2 jobs`, `1,200 jobs`. */
export function countOf(count: number, noun: string, plural = `${noun}s`): string {
  return `${count.toLocaleString('en')} ${count === 1 ? noun : plural}`;
}

/** The name of a step without those of the splits around it: `copy` of `copies.1.cloud.copy`. */
export function stepName(path: string): string {
  return path.slice(path.lastIndexOf('.') + 1);
}

/** `timed_out` as `timed out`. */
export function words(name: string): string {
  return name.replaceAll('_', ' ');
}

export function capitalized(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

export function formatBytes(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 * 1024) return `${(bytes / 1024).toFixed(1)} KB`;
  return `${(bytes / 1024 / 1024).toFixed(1)} MB`;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: terminal sequences begin with one.
const TERMINAL_SEQUENCE = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\u0007]*(?:\u0007|$)|.)/g;

/** Removes the sequences by which programs colour a terminal. */
export function stripTerminalSequences(text: string): string {
  return text.includes('\u001b') ? text.replace(TERMINAL_SEQUENCE, '') : text;
}
