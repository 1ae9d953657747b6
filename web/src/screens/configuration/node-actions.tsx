// Drain a node before maintenance, let it work again, or forget one that is gone.

import { path, post } from '../../api/client';
import { can } from '../../api/session';
import type { ClusterNode } from '../../api/types';
import { ask } from '../../components/dialog';
import { report } from '../../components/toast';

const QUESTIONS = {
  drain: {
    title: 'Drain',
    text: 'It claims no more jobs; its running jobs end.',
    done: 'The node claims no more jobs.',
  },
  forget: {
    title: 'Forget',
    text: 'It is removed from the list, and no job waits for it any longer.',
    done: 'The node is forgotten.',
  },
};

interface NodeActionsProps {
  node: ClusterNode;
  onDone: () => void;
}

export function NodeActions({ node, onDone }: NodeActionsProps) {
  if (!can('system:rw')) return null;
  const { name, state, drained_at } = node;
  const isGone = state === 'stopped' || state === 'lost';
  const change = async (action: 'drain' | 'forget') => {
    const { title, text, done } = QUESTIONS[action];
    const question = { title: `${title} ${name}?`, text, confirm: title, isDestructive: true };
    if (!(await ask(question))) return;
    await report(post(path('node', name, action)), done);
    onDone();
  };
  const resume = async () => {
    await report(post(path('node', name, 'resume')), 'The node claims jobs again.');
    onDone();
  };
  return (
    <span class="row-actions">
      {drained_at ? (
        <button type="button" onClick={resume}>
          Resume
        </button>
      ) : (
        !isGone && (
          <button type="button" onClick={() => change('drain')}>
            Drain …
          </button>
        )
      )}
      {isGone && (
        <button type="button" class="danger-quiet" onClick={() => change('forget')}>
          Forget …
        </button>
      )}
    </span>
  );
}
