import { path } from '../../api/client';
import { ofTopics, useResource } from '../../api/resource';
import type { Facts } from '../../api/types';
import { JsonView } from '../../components/json-view';
import { Section } from '../../components/page';
import { Empty, Loaded } from '../../components/states';
import { Time } from '../../components/time';
import { Link } from '../../router/link';
import { StateActions } from './state-actions';

export function FactList({ plugin }: { plugin: string }) {
  const found = useResource<Facts>(path('system', 'plugin-facts', plugin), ofTopics('jobs'));
  return (
    <Loaded resource={found}>
      {({ state, facts, cursor }) => (
        <>
          <Section title="State" aside={<StateActions plugin={plugin} onDone={found.refetch} />}>
            <JsonView value={state} label="State" />
          </Section>
          <Section title="Facts">
            {facts.length ? (
              <ol class="facts">
                {facts.map(({ id, fact_type, job_id, fact_json, created_at }) => (
                  <li key={id}>
                    <p>
                      <strong>{fact_type}</strong> <Time at={created_at} />{' '}
                      {job_id && <Link to={`/jobs/${job_id}`}>job</Link>}
                    </p>
                    <JsonView value={fact_json} label={fact_type} />
                  </li>
                ))}
              </ol>
            ) : (
              <Empty title="It has recorded no facts">
                With <code>fact_outputs</code> in the manifest, each update of the state is kept.
              </Empty>
            )}
            {cursor !== null && <p class="muted">There are older facts.</p>}
          </Section>
        </>
      )}
    </Loaded>
  );
}
