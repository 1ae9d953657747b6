// Change one setting in the file that defines it: what would change is shown before it is written.

import { useState } from 'preact/hooks';
import { post, RawJson } from '../../api/client';
import { parseJson } from '../../api/json';
import type { SettingChanged } from '../../api/types';
import { Dialog } from '../../components/dialog';
import { FormDialog, type FormField, type FormValues } from '../../components/form-dialog';
import { report } from '../../components/toast';

const FIELDS: FormField[] = [
  {
    name: 'path',
    label: 'Setting',
    isRequired: true,
    placeholder: 'plugins.echo.schedules[0].every',
  },
  {
    name: 'value',
    label: 'Value',
    isRequired: true,
    placeholder: '10m',
    hint: 'Text, or JSON: true, 5, ["a"], null. Text that looks like JSON takes quotes.',
  },
];

interface SettingDialogProps {
  /** The file is written: a reload puts it in force. */
  onWritten: () => void;
  onClose: () => void;
}

export function SettingDialog({ onWritten, onClose }: SettingDialogProps) {
  const [body, setBody] = useState<Record<string, RawJson>>({});
  const [plan, setPlan] = useState<SettingChanged | null>(null);
  const preview = async (values: FormValues) => {
    const wanted = {
      path: new RawJson(JSON.stringify(values.path ?? '')),
      value: readValue(String(values.value ?? '')),
    };
    setPlan(await post<SettingChanged>('/config/set', { ...wanted, dry_run: true }));
    setBody(wanted);
  };
  const write = async () => {
    const done = await report(
      post<SettingChanged>('/config/set', body),
      ({ file }) => `${file} is written. It is in force after a reload.`,
    );
    onClose();
    if (done?.changed) onWritten();
  };
  if (!plan) {
    return (
      <FormDialog
        title="Change a setting"
        fields={FIELDS}
        confirm="Show the change"
        onSubmit={preview}
        onClose={onClose}
      />
    );
  }
  return (
    <Dialog title={`Change ${plan.file}?`} onClose={onClose} wide>
      <div class="dialog-body">
        {plan.changed ? <FileDiff text={plan.diff} /> : <p>It has this value already.</p>}
        {plan.warnings.map((warning) => (
          <p key={warning} class="problem">
            {warning}
          </p>
        ))}
      </div>
      <footer class="dialog-foot">
        <button type="button" onClick={onClose}>
          Keep it as it is
        </button>
        <button type="button" class="primary" disabled={!plan.changed} onClick={write}>
          Write the file
        </button>
      </footer>
    </Dialog>
  );
}

/** As `ductile config set` reads it: JSON if it is JSON, otherwise text. */
export function readValue(text: string): RawJson {
  try {
    parseJson(text);
    return new RawJson(text);
  } catch {
    return new RawJson(JSON.stringify(text));
  }
}

const CLASSES: Record<string, string> = { '+': 'diff-add', '-': 'diff-remove' };

function FileDiff({ text }: { text: string }) {
  // The first two lines name the file, as the title does.
  const lines = text.trimEnd().split('\n').slice(2);
  return (
    <ul class="diff diff-file">
      {lines.map((line, number) => (
        <li key={number} class={CLASSES[line[0] ?? ''] ?? ''}>
          {line}
        </li>
      ))}
    </ul>
  );
}
