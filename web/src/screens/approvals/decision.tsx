// Approve or reject what a run waits for, with a comment.

import { useState } from 'preact/hooks';
import { path, post, withQuery } from '../../api/client';
import { ofTopics, useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { Approval, Approvals } from '../../api/types';
import { FormDialog, type FormField, type FormValues } from '../../components/form-dialog';
import { notify } from '../../components/toast';

type Decision = 'approve' | 'reject';

const TEXTS = {
  approve: {
    done: 'It is approved: the run continues.',
    effect: 'The next step of the pipeline runs.',
    button: 'Approve',
  },
  reject: {
    done: 'It is rejected.',
    effect: 'The step fails, and with it what depends on it.',
    button: 'Reject',
  },
};

interface DecisionProps {
  approval: Approval;
  onDone: () => void;
}

/** Nothing if it is decided already or the session may not decide. */
export function DecisionButtons({ approval, onDone }: DecisionProps) {
  const [decision, setDecision] = useState<Decision | null>(null);
  if (approval.status !== 'waiting' || !can('approvals:rw')) return null;
  return (
    <span class="row-actions">
      <button type="button" class="primary" onClick={() => setDecision('approve')}>
        Approve …
      </button>
      <button type="button" class="danger-quiet" onClick={() => setDecision('reject')}>
        Reject …
      </button>
      {decision && (
        <DecisionDialog
          approval={approval}
          decision={decision}
          onDone={onDone}
          onClose={() => setDecision(null)}
        />
      )}
    </span>
  );
}

interface DecisionDialogProps extends DecisionProps {
  decision: Decision;
  onClose: () => void;
}

const FIELDS: readonly FormField[] = [
  { name: 'comment', label: 'Comment', placeholder: 'recorded with your name' },
];

function DecisionDialog({ approval, decision, onDone, onClose }: DecisionDialogProps) {
  const { done, effect, button } = TEXTS[decision];
  const decide = async (values: FormValues) => {
    await post(path('approvals', approval.id, decision), values);
    notify(done);
    onClose();
    onDone();
  };
  return (
    <FormDialog
      title={`${button}: ${approval.title}`}
      fields={FIELDS}
      confirm={button}
      cancel="Decide later"
      isDestructive={decision === 'reject'}
      onSubmit={decide}
      onClose={onClose}
    >
      {approval.description && <p>{approval.description}</p>}
      <p class="muted">{effect}</p>
    </FormDialog>
  );
}

/** The decisions that a run waits for. */
export function RunApprovals({ pipeline, run }: { pipeline: string; run: string }) {
  const found = useResource<Approvals>(
    can('approvals:ro') ? withQuery('/approvals', { pipeline, status: 'waiting' }) : null,
    ofTopics('approvals'),
  );
  const waiting = found.data?.approvals.filter(({ instance_id }) => instance_id === run) ?? [];
  return waiting.map((approval) => (
    <section key={approval.id} class="paused" aria-label="Approval">
      <p>
        <strong>{approval.title}</strong> waits for an approval. {approval.description}
      </p>
      <DecisionButtons approval={approval} onDone={found.refetch} />
    </section>
  ));
}
