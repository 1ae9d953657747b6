// A dialog with a form of short fields, for an action that needs more than a yes.

import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { RawJson } from '../api/client';
import { parseJson } from '../api/json';
import { Dialog } from './dialog';
import { notify } from './toast';

export interface FormField {
  name: string;
  label: string;
  isRequired?: boolean;
  placeholder?: string;
  /** A regular expression of the whole text. */
  pattern?: string;
  hint?: ComponentChildren;
  /** What the field begins with. */
  value?: string;
  /** The value is JSON, and is sent as it was typed. */
  isJson?: boolean;
}

/** What was entered; fields that were left empty are missing. */
export type FormValues = Record<string, string | RawJson | undefined>;

interface FormDialogProps {
  title: string;
  children?: ComponentChildren;
  fields: readonly FormField[];
  confirm: string;
  /** The button that changes nothing. */
  cancel?: string;
  isDestructive?: boolean;
  /** Sends the values. If it throws, the error is shown and the dialog stays open. */
  onSubmit: (values: FormValues) => Promise<void>;
  onClose: () => void;
}

export function FormDialog({
  title,
  children,
  fields,
  confirm,
  cancel = 'Close',
  isDestructive,
  onSubmit,
  onClose,
}: FormDialogProps) {
  const [isSending, setSending] = useState(false);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    setSending(true);
    try {
      await onSubmit(readValues(fields, form));
    } catch (error) {
      notify((error as Error).message, true);
    }
    setSending(false);
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form onSubmit={submit}>
        <div class="dialog-body">
          {children}
          {fields.map(({ name, label, isRequired, pattern, placeholder, hint, value, isJson }) => (
            <div class="field" key={name}>
              <label for={`form-${name}`}>{label}</label>
              {isJson ? (
                <textarea
                  id={`form-${name}`}
                  name={name}
                  rows={6}
                  spellcheck={false}
                  defaultValue={value ?? ''}
                />
              ) : (
                <input
                  id={`form-${name}`}
                  name={name}
                  required={isRequired}
                  pattern={pattern}
                  autocomplete="off"
                  placeholder={placeholder}
                  defaultValue={value}
                />
              )}
              {hint && <small class="muted">{hint}</small>}
            </div>
          ))}
        </div>
        <footer class="dialog-foot">
          <button type="button" onClick={onClose}>
            {cancel}
          </button>
          <button type="submit" class={isDestructive ? 'danger' : 'primary'} disabled={isSending}>
            {confirm}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

export function readValues(fields: readonly FormField[], form: FormData): FormValues {
  const entered = fields.flatMap(({ name, label, isJson }) => {
    const text = String(form.get(name) ?? '').trim();
    if (!text) return [];
    return [[name, isJson ? readJson(text, label) : text] as const];
  });
  return Object.fromEntries(entered);
}

function readJson(text: string, label: string): RawJson {
  try {
    parseJson(text);
  } catch (error) {
    throw new Error(`${label} is not JSON: ${(error as Error).message}`);
  }
  return new RawJson(text);
}
