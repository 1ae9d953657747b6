// The gateway that answers this page, and its ledger.

import { useResource } from '../../api/resource';
import type { Status } from '../../api/types';
import { JsonView } from '../../components/json-view';
import { Details, Section } from '../../components/page';
import { Loaded } from '../../components/states';
import { formatDuration } from '../../format/duration';
import { LAST_STATUS } from '../plugins/health-checks';

export function GatewayNodes() {
  const status = useResource<Status>(LAST_STATUS);
  return (
    <Loaded resource={status}>
      {({ version, boot, uptime_seconds, workers, ledger, queue_depth, running }) => (
        <>
          <Section title="This gateway">
            <Details
              entries={[
                ['Version', version],
                ['Boot', <span class="mono">{boot}</span>],
                ['Up for', formatDuration(uptime_seconds * 1000)],
                ['Workers', `${running} of ${workers} busy`],
                ['Queued', String(queue_depth)],
              ]}
            />
          </Section>
          <Section title="Ledger">
            <JsonView value={ledger} label="Ledger" />
          </Section>
        </>
      )}
    </Loaded>
  );
}
