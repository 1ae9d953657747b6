// The configuration in force, its problems, and a reload after a look at the changes.

import { useState } from 'preact/hooks';
import { get, post } from '../../api/client';
import { useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { ConfigView, Reload } from '../../api/types';
import { Dialog } from '../../components/dialog';
import { JsonView } from '../../components/json-view';
import { Details, Section } from '../../components/page';
import { Loaded } from '../../components/states';
import { notify, report } from '../../components/toast';
import { BackupButton } from './backup';

export function ConfigFiles() {
  const [preview, setPreview] = useState<Reload | null>(null);
  const view = useResource<ConfigView>('/config/view');
  const open = async () => {
    try {
      setPreview(await get<Reload>('/system/reload'));
    } catch (error) {
      notify((error as Error).message, true);
    }
  };
  const apply = async () => {
    setPreview(null);
    await report(post('/system/reload'), 'The configuration is reloaded.');
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
            <ReloadDialog preview={preview} onApply={apply} onClose={() => setPreview(null)} />
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

interface ReloadDialogProps {
  preview: Reload;
  onApply: () => void;
  onClose: () => void;
}

function ReloadDialog({ preview, onApply, onClose }: ReloadDialogProps) {
  const { changes = {}, warnings, refused } = preview;
  const lines = Object.entries(changes).flatMap(([kind, { added, removed, changed }]) => [
    ...added.map((name) => ({ sign: '+', text: `${kind} ${name}` })),
    ...removed.map((name) => ({ sign: '−', text: `${kind} ${name}` })),
    ...changed.map((name) => ({ sign: '~', text: `${kind} ${name}` })),
  ]);
  return (
    <Dialog title="Reload the configuration?" onClose={onClose}>
      <div class="dialog-body">
        {lines.length ? (
          <ul class="diff">
            {lines.map(({ sign, text }) => (
              <li
                key={sign + text}
                class={`diff-${sign === '+' ? 'add' : sign === '−' ? 'remove' : 'change'}`}
              >
                {sign} {text}
              </li>
            ))}
          </ul>
        ) : (
          <p>No plugin or pipeline would change.</p>
        )}
        {warnings.map((warning) => (
          <p key={warning} class="problem">
            {warning}
          </p>
        ))}
        {Object.entries(refused).map(([plugin, reason]) => (
          <p key={plugin} class="problem">
            {plugin} cannot be loaded: {reason}
          </p>
        ))}
      </div>
      <footer class="dialog-foot">
        <button type="button" onClick={onClose}>
          Keep the current one
        </button>
        <button type="button" class="primary" onClick={onApply}>
          Reload
        </button>
      </footer>
    </Dialog>
  );
}
