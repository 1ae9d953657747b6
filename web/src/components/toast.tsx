// Short messages about the result of an action.

import { signal } from '@preact/signals';

interface Message {
  id: number;
  text: string;
  isError: boolean;
}

const SHOWN_MS = 5000;
const SHOWN_ERROR_MS = 12_000;
const messages = signal<Message[]>([]);
let nextId = 1;

export function notify(text: string, isError = false): void {
  const id = nextId++;
  messages.value = [...messages.value, { id, text, isError }];
  setTimeout(() => dismiss(id), isError ? SHOWN_ERROR_MS : SHOWN_MS);
}

function dismiss(id: number): void {
  messages.value = messages.value.filter((message) => message.id !== id);
}

/** Runs an action and reports its result; returns its value, or null if it failed. */
export async function report<T>(
  action: Promise<T>,
  success: string | ((result: T) => string),
): Promise<T | null> {
  try {
    const result = await action;
    notify(typeof success === 'string' ? success : success(result));
    return result;
  } catch (error) {
    notify((error as Error).message, true);
    return null;
  }
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {messages.value.map(({ id, text, isError }) => (
        <div key={id} class={isError ? 'toast toast-error' : 'toast'}>
          <span>{text}</span>
          <button type="button" class="quiet" aria-label="Dismiss" onClick={() => dismiss(id)}>
            ✕
          </button>
        </div>
      ))}
    </div>
  );
}
