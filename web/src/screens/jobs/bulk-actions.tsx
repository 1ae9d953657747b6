// Retry, acknowledge or cancel every job that matches the filters, after a preview of what is touched.

import { useState } from 'preact/hooks';
import { post } from '../../api/client';
import type { Json } from '../../api/json';
import type { BulkResult, JobSummary } from '../../api/types';
import { Dialog } from '../../components/dialog';
import { notify, report } from '../../components/toast';
import { countOf } from '../../format/text';
import { Link } from '../../router/link';

const LIMIT = 1000;
const SHOWN = 12;

type Action = 'retry' | 'acknowledge' | 'cancel';

interface BulkActionsProps {
  filter: Record<string, string>;
  /** The jobs that the list shows, which have names in the preview. */
  known: JobSummary[];
  onDone: () => void;
}

interface ActionText {
  states: string[];
  verb: string;
  done: string;
  text: string;
}

const ACTIONS: Record<Action, ActionText> = {
  retry: {
    states: ['dead', 'failed'],
    verb: 'Retry',
    done: 'queued again',
    text: 'Each job is queued again with its payload.',
  },
  acknowledge: {
    states: ['dead', 'failed'],
    verb: 'Acknowledge',
    done: 'acknowledged',
    text: 'They stay as they are, and are no longer on the home page.',
  },
  cancel: {
    states: ['queued', 'running'],
    verb: 'Cancel',
    done: 'cancelled',
    text: 'Queued jobs end without running. Running jobs are terminated.',
  },
};

/** What a retry of all leaves out unless the filter asks for it. */
const LEFT_OUT = 'Jobs that were acknowledged or cancelled are left out.';

export function BulkActions({ filter, known, onDone }: BulkActionsProps) {
  const [preview, setPreview] = useState<{ action: Action; result: BulkResult } | null>(null);
  const status = filter.status ?? '';
  const { acknowledged, ...rest } = filter;
  const sent: Json = acknowledged ? { ...rest, acknowledged: acknowledged === 'true' } : rest;
  const offered = (Object.keys(ACTIONS) as Action[]).filter(
    (action) =>
      ACTIONS[action].states.includes(status) &&
      (action !== 'acknowledge' || acknowledged !== 'true'),
  );
  const send = (action: Action, terms: Record<string, Json>) =>
    post<BulkResult>(`/jobs/${action}`, { filter: sent, limit: LIMIT, ...terms });
  const open = async (action: Action) => {
    try {
      setPreview({ action, result: await send(action, { dry_run: true }) });
    } catch (error) {
      notify((error as Error).message, true);
    }
  };
  const apply = async (action: Action, expected: number) => {
    setPreview(null);
    // Refused if other jobs match by now than the preview has shown.
    await report(
      send(action, { expected }),
      ({ count }) => `${countOf(count, 'job')} ${ACTIONS[action].done}.`,
    );
    onDone();
  };
  return (
    <>
      {offered.map((action) => (
        <button type="button" key={action} onClick={() => open(action)}>
          {ACTIONS[action].verb} all …
        </button>
      ))}
      {preview && (
        <Preview
          {...preview}
          isPartial={preview.action === 'retry' && acknowledged !== 'true'}
          known={known}
          onApply={() => apply(preview.action, preview.result.count)}
          onClose={() => setPreview(null)}
        />
      )}
    </>
  );
}

interface PreviewProps {
  action: Action;
  result: BulkResult;
  known: JobSummary[];
  isPartial: boolean;
  onApply: () => void;
  onClose: () => void;
}

function Preview({ action, result, known, isPartial, onApply, onClose }: PreviewProps) {
  const { jobs, count, refused, more } = result;
  const names = new Map(known.map((job) => [job.job_id, `${job.plugin}.${job.command}`]));
  const { verb, text } = ACTIONS[action];
  return (
    <Dialog title={`${verb} ${countOf(count, 'job')}?`} onClose={onClose}>
      <div class="dialog-body">
        <p>
          {text}
          {isPartial && ` ${LEFT_OUT}`}
          {more && ` There are more; this touches the first ${count}.`}
        </p>
        <ul class="id-list">
          {jobs.slice(0, SHOWN).map((id) => (
            <li key={id}>
              <Link to={`/jobs/${id}`}>{id}</Link> {names.get(id)}
            </li>
          ))}
          {jobs.length > SHOWN && <li>and {jobs.length - SHOWN} more</li>}
        </ul>
        {refused.length > 0 && (
          <p class="muted">
            {countOf(refused.length, 'job')} left out: {refused[0]?.error}
          </p>
        )}
      </div>
      <footer class="dialog-foot">
        <button type="button" onClick={onClose}>
          Keep them as they are
        </button>
        <button
          type="button"
          class={action === 'cancel' ? 'danger' : 'primary'}
          disabled={!count}
          onClick={onApply}
        >
          {verb} {countOf(count, 'job')}
        </button>
      </footer>
    </Dialog>
  );
}
