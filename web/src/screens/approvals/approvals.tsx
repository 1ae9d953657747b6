// What waits for a decision, and what was decided.

import { withQuery } from '../../api/client';
import { ofTopics, useResource } from '../../api/resource';
import type { Approval, Approvals as ApprovalPage } from '../../api/types';
import { Badge } from '../../components/badge';
import { Filters, SelectFilter } from '../../components/filters';
import { Page } from '../../components/page';
import { CursorPager } from '../../components/pager';
import { Empty, Loaded, MissingRoute } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Time } from '../../components/time';
import { Link } from '../../router/link';
import { queryValue } from '../../router/router';
import { DecisionButtons } from './decision';

const STATES = ['waiting', 'approved', 'rejected', 'expired', 'cancelled'];
const PAGE_SIZE = 50;

function columns(onDone: () => void): Column<Approval>[] {
  return [
    {
      id: 'title',
      title: 'Approval',
      cell: ({ title, description }) => (
        <>
          <strong>{title}</strong>
          {description && <div class="note">{description}</div>}
        </>
      ),
    },
    { id: 'status', title: 'Status', cell: ({ status }) => <Badge status={status} /> },
    {
      id: 'run',
      title: 'Run',
      wide: true,
      cell: ({ instance_id, pipeline, step }) => (
        <>
          {instance_id ? <Link to={`/runs/${instance_id}`}>{pipeline}</Link> : pipeline}
          <span class="muted"> · {step}</span>
        </>
      ),
    },
    {
      id: 'created',
      title: 'Asked',
      wide: true,
      cell: ({ created_at }) => <Time at={created_at} relative />,
    },
    { id: 'end', title: 'End', wide: true, cell: (approval) => <End approval={approval} /> },
    {
      id: 'actions',
      title: '',
      align: 'right',
      cell: (approval) => <DecisionButtons approval={approval} onDone={onDone} />,
    },
  ];
}

function End({ approval }: { approval: Approval }) {
  const { ended_at, ended_by, comment, due_at, on_timeout } = approval;
  if (!ended_at) {
    if (!due_at) return <span class="muted">waits without an end</span>;
    return (
      <span class="note">
        expires <Time at={due_at} relative />, then: {on_timeout}
      </span>
    );
  }
  return (
    <span class="note" title={comment ?? ''}>
      <Time at={ended_at} relative /> {ended_by && `by ${ended_by}`} {comment && `“${comment}”`}
    </span>
  );
}

export function Approvals() {
  const status = queryValue('status');
  const address = withQuery('/approvals', {
    status,
    before: queryValue('before'),
    limit: PAGE_SIZE,
  });
  const page = useResource<ApprovalPage>(address, ofTopics('approvals'));
  return (
    <Page title="Approvals">
      <Filters>
        <SelectFilter name="status" label="Status" options={STATES} />
      </Filters>
      <Loaded resource={page} missing={<MissingRoute what="approvals" />}>
        {({ approvals, cursor }) => (
          <>
            {approvals.length ? (
              <Table
                rows={approvals}
                columns={columns(page.refetch)}
                keyOf={({ id }) => id}
                label="Approvals"
              />
            ) : (
              <Empty title={status ? `Nothing is ${status}` : 'No step has asked for an approval'}>
                A step with <code>wait: {'{approval: …}'}</code> lets a pipeline wait for one.
              </Empty>
            )}
            <CursorPager next={cursor} />
          </>
        )}
      </Loaded>
    </Page>
  );
}
