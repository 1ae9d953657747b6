// The configuration in force, its problems, and a reload after a look at the changes.

import { useState } from 'preact/hooks';
import { get, post } from '../../api/client';
import { useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { ConfigPlan, ConfigView } from '../../api/types';
import { JsonView } from '../../components/json-view';
import { Details, Section } from '../../components/page';
import { Loaded } from '../../components/states';
import { notify, report } from '../../components/toast';
import { BackupButton } from './backup';
import { PlanDialog } from './plan-dialog';

export function ConfigFiles() {
  const [preview, setPreview] = useState<ConfigPlan | null>(null);
  const view = useResource<ConfigView>('/config/view');
  const open = async () => {
    try {
      setPreview(await get<ConfigPlan>('/config/plan'));
    } catch (error) {
      notify((error as Error).message, true);
    }
  };
  const apply = async ({ id }: ConfigPlan) => {
    setPreview(null);
    await report(post('/config/apply', { plan: id }), 'The configuration is reloaded.');
    view.refetch();
  };
  return (
    <Loaded resource={view}>
      {({ config, config_hash, snapshot_id, warnings }) => (
        <>
          <Problems warnings={warnings} />
          {can('system:rw') && (
            <div class="actions part-actions">
              <button type="button" onClick={open}>
                Reload …
              </button>
              <BackupButton />
            </div>
          )}
          <Details
            entries={[
              [
                'Hash',
                <span class="mono" title={config_hash}>
                  {config_hash.slice(0, 12)}
                </span>,
              ],
              ['Snapshot', snapshot_id && <span class="mono">{snapshot_id}</span>],
            ]}
          />
          {Object.entries(config).map(([key, value]) => (
            <Section key={key} title={key}>
              <JsonView value={value} label={key} />
            </Section>
          ))}
          {preview && (
            <PlanDialog
              title="Reload the configuration?"
              plan={preview}
              confirm="Reload"
              onConfirm={() => apply(preview)}
              onClose={() => setPreview(null)}
            />
          )}
        </>
      )}
    </Loaded>
  );
}

function Problems({ warnings }: { warnings: string[] }) {
  if (!warnings.length) {
    return (
      <div class="verdict verdict-good">
        <strong>The configuration has no problems.</strong>
      </div>
    );
  }
  return (
    <section class="why why-bad">
      <h2>Problems</h2>
      <ul>
        {warnings.map((warning) => (
          <li key={warning}>{warning}</li>
        ))}
      </ul>
    </section>
  );
}
