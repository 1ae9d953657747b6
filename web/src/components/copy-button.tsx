import { useState } from 'preact/hooks';
import { notify } from './toast';

const SHOWN_MS = 1500;

export function CopyButton({ text, label = 'Copy' }: { text: () => string; label?: string }) {
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
      setDone(true);
      setTimeout(() => setDone(false), SHOWN_MS);
    } catch {
      notify('The browser did not allow copying. Select the text instead.', true);
    }
  };
  return (
    <button type="button" class="copy" onClick={copy}>
      {isDone ? 'Copied' : label}
    </button>
  );
}
