// Pause something with a reason, see who paused it, and resume it.

import { useState } from 'preact/hooks';
import { path, post } from '../../api/client';
import type { Resource } from '../../api/resource';
import { can } from '../../api/session';
import type { Pause, Pauses } from '../../api/types';
import { FormDialog, type FormField, type FormValues } from '../../components/form-dialog';
import { Time } from '../../components/time';
import { notify, report } from '../../components/toast';
import { capitalized } from '../../format/text';
import { describeTarget, type PauseTarget, pauseOf } from './pauses';

interface PauseProps {
  target: PauseTarget;
  pauses: Resource<Pauses>;
}

function addressOf({ kind, name }: PauseTarget, action: 'pause' | 'resume'): string {
  return name === null ? path('system', action) : path(`${kind}s`, name, action);
}

/** The button that pauses; nothing while it is paused, because the notice has the other button. */
export function PauseButton({ target, pauses }: PauseProps) {
  const [isOpen, setOpen] = useState(false);
  if (!can('system:rw') || !pauses.data || pauseOf(pauses.data, target)) return null;
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>
        Pause {target.kind === 'system' ? 'the gateway ' : ''}…
      </button>
      {isOpen && (
        <PauseDialog target={target} onDone={pauses.refetch} onClose={() => setOpen(false)} />
      )}
    </>
  );
}

/** Who paused it, why and until when; nothing if it is not paused. */
export function PauseNotice({ target, pauses }: PauseProps) {
  const pause = pauseOf(pauses.data, target);
  if (!pause) return null;
  const resume = async () => {
    const done = `${capitalized(describeTarget(target))} is resumed.`;
    await report(post(addressOf(target, 'resume')), done);
    pauses.refetch();
  };
  return (
    <section class="paused" aria-label="Pause">
      <PauseText pause={pause} />
      {can('system:rw') && (
        <button type="button" onClick={resume}>
          Resume
        </button>
      )}
    </section>
  );
}

function PauseText({ pause }: { pause: Pause }) {
  const { paused_by, paused_at, reason, until } = pause;
  return (
    <p>
      <strong>{capitalized(describeTarget(pause))} is paused</strong> by {paused_by} since{' '}
      <Time at={paused_at} />
      {until ? (
        <>
          {' '}
          until <Time at={until} />
        </>
      ) : (
        ', until it is resumed'
      )}
      {reason && <>: {reason.replace(/\.$/, '')}</>}. Its jobs stay queued.
    </p>
  );
}

interface PauseDialogProps {
  target: PauseTarget;
  onDone: () => void;
  onClose: () => void;
}

const FIELDS: readonly FormField[] = [
  { name: 'reason', label: 'Reason', placeholder: 'shown with every held job' },
  { name: 'duration', label: 'Resume after', placeholder: 'by hand, or 2h' },
];

function PauseDialog({ target, onDone, onClose }: PauseDialogProps) {
  const what = describeTarget(target);
  const pause = async (values: FormValues) => {
    await post(addressOf(target, 'pause'), values);
    notify(`${capitalized(what)} is paused.`);
    onClose();
    onDone();
  };
  return (
    <FormDialog
      title={`Pause ${what}?`}
      fields={FIELDS}
      confirm="Pause"
      cancel="Keep it running"
      isDestructive
      onSubmit={pause}
      onClose={onClose}
    >
      <p>Jobs stay queued until it is resumed. Jobs that run already continue.</p>
    </FormDialog>
  );
}
