// Times are shown in the viewer's zone; the gateway's zone is in the tooltip.

import { signal } from '@preact/signals';

/** The current time in milliseconds, once a second while the page is visible. */
export const now = signal(Date.now());

setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);

const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium' });
const HOUR = new Intl.DateTimeFormat(undefined, { hour: 'numeric' });
const DAY_AND_CLOCK = new Intl.DateTimeFormat(undefined, {
  month: 'short',
  day: 'numeric',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
});
const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'long' });

export function toMillis(text: string): number {
  return Date.parse(text);
}

/** The clock of a time of today, otherwise with its day. */
export function formatTime(text: string): string {
  const time = new Date(text);
  if (Number.isNaN(time.getTime())) return text;
  const isToday = time.toDateString() === new Date().toDateString();
  return (isToday ? CLOCK : DAY_AND_CLOCK).format(time);
}

const FULL_TIME = /\b(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d[\d:.]*(?:Z|[+-]\d\d:\d\d))/g;

/** A text of the gateway with its times in the viewer's zone. */
export function withLocalTimes(text: string): string {
  return text.replace(FULL_TIME, (_, day, clock) => formatTime(`${day}T${clock}`));
}

/** The hour of a time. */
export function formatHour(text: string): string {
  return HOUR.format(new Date(text));
}

/** The full time in the viewer's zone and in the gateway's. */
export function describeTime(text: string, gatewayZone: string | undefined): string {
  const time = new Date(text);
  if (Number.isNaN(time.getTime())) return text;
  const here = FULL.format(time);
  if (!gatewayZone) return `${here}\n${text}`;
  try {
    const zoned = new Intl.DateTimeFormat(undefined, {
      dateStyle: 'medium',
      timeStyle: 'long',
      timeZone: gatewayZone,
    });
    return `${here}\nGateway: ${zoned.format(time)} (${gatewayZone})`;
  } catch {
    return `${here}\n${text}`;
  }
}
