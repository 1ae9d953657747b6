// Pause something with a reason, see who paused it, and resume it.

import { useState } from 'preact/hooks';
import { path, post } from '../../api/client';
import type { Resource } from '../../api/resource';
import { can } from '../../api/session';
import type { Pause, Pauses } from '../../api/types';
import { Dialog } from '../../components/dialog';
import { Time } from '../../components/time';
import { report } from '../../components/toast';
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

function PauseDialog({ target, onDone, onClose }: PauseDialogProps) {
  const what = describeTarget(target);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const value = (name: string) => String(form.get(name) ?? '').trim() || undefined;
    const sent = post(addressOf(target, 'pause'), {
      reason: value('reason'),
      duration: value('duration'),
    });
    if (!(await report(sent, `${capitalized(what)} is paused.`))) return;
    onClose();
    onDone();
  };
  return (
    <Dialog title={`Pause ${what}?`} onClose={onClose}>
      <form onSubmit={submit}>
        <div class="dialog-body">
          <p>Jobs stay queued until it is resumed. Jobs that run already continue.</p>
          <label class="field">
            <span>Reason</span>
            <input name="reason" autocomplete="off" placeholder="shown with every held job" />
          </label>
          <label class="field">
            <span>Resume after</span>
            <input name="duration" autocomplete="off" placeholder="by hand, or 2h" />
          </label>
        </div>
        <footer class="dialog-foot">
          <button type="button" onClick={onClose}>
            Keep it running
          </button>
          <button type="submit" class="danger">
            Pause
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
