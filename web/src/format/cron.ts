// Schedules in plain language. Anything unusual stays as it is written.

import { capitalized } from './text';

const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const MONTHS = [
  'January',
  'February',
  'March',
  'April',
  'May',
  'June',
  'July',
  'August',
  'September',
  'October',
  'November',
  'December',
];

const UNITS: Record<string, string> = { s: 's', m: 'min', h: 'h', d: 'd', w: 'w' };

const SINGLE: Record<string, string> = {
  s: 'second',
  m: 'minute',
  h: 'hour',
  d: 'day',
  w: 'week',
};

/** Describes a rule of the gateway, such as `cron 30 2 * * *` or `every 5m`. */
export function describeRule(rule: string): string {
  if (rule.startsWith('cron ')) return describeCron(rule.slice(5)) ?? rule;
  const single = /^every 1([smhdw])$/.exec(rule)?.[1];
  if (single) return `Every ${SINGLE[single]}`;
  const spaced = rule.replace(/(?<=\d)([smhdw])(?=\d|$)/g, (_, unit) => ` ${UNITS[unit]} `);
  return capitalized(spaced.trimEnd());
}

/** Describes five cron fields, or returns null if no short sentence says the same. */
export function describeCron(expression: string): string | null {
  const fields = expression.trim().split(/\s+/);
  if (fields.length !== 5) return null;
  const [minute = '', hour = '', day = '', month = '', weekday = ''] = fields;
  const clock = describeClock(minute, hour);
  const days = describeDays(day, weekday);
  const months = describeMonths(month);
  if (clock === null || days === null || months === null) return null;
  return [clock, days, months].filter(Boolean).join(', ');
}

function describeClock(minute: string, hour: string): string | null {
  const step = /^\*\/(\d+)$/.exec(minute)?.[1];
  const hours = describeHours(hour);
  if (minute === '*' || step) {
    const rate = step && step !== '1' ? `Every ${step} minutes` : 'Every minute';
    return hours === null ? null : rate + (hours && `, ${hours}`);
  }
  if (!/^\d+$/.test(minute)) return null;
  if (/^\d+(,\d+)*$/.test(hour)) {
    const times = hour.split(',').map((value) => `${pad(value)}:${pad(minute)}`);
    return `At ${joinWords(times)}`;
  }
  const hourStep = /^\*\/(\d+)$/.exec(hour)?.[1];
  if (hourStep) return `Every ${hourStep} hours at minute ${minute}`;
  if (hours === null) return null;
  return `Hourly at minute ${minute}${hours && `, ${hours}`}`;
}

function describeHours(hour: string): string | null {
  if (hour === '*') return '';
  const range = /^(\d+)-(\d+)$/.exec(hour);
  if (range) return `${pad(range[1] ?? '')}:00–${pad(range[2] ?? '')}:59`;
  return /^\d+$/.test(hour) ? `${pad(hour)}:00–${pad(hour)}:59` : null;
}

function describeDays(day: string, weekday: string): string | null {
  const isAnyDay = day === '*';
  if (weekday === '*') {
    if (isAnyDay) return '';
    return /^\d+$/.test(day) ? `on day ${day} of the month` : null;
  }
  if (!isAnyDay) return null;
  if (weekday === '1-5' || /^mon-fri$/i.test(weekday)) return 'Monday to Friday';
  if (weekday === '0,6' || weekday === '6,0') return 'on weekends';
  const names = weekday.split(',').map((part) => DAYS[Number(part) % 7] ?? null);
  return names.includes(null) ? null : `on ${joinWords(names as string[])}`;
}

function describeMonths(month: string): string | null {
  if (month === '*') return '';
  const names = month.split(',').map((part) => MONTHS[Number(part) - 1] ?? null);
  return names.includes(null) ? null : `in ${joinWords(names as string[])}`;
}

function joinWords(words: string[]): string {
  return words.length < 2
    ? (words[0] ?? '')
    : `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`;
}

function pad(number: string): string {
  return number.padStart(2, '0');
}
