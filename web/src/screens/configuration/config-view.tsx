// The configuration in force, its problems, and a reload after a look at the changes.

import { useState } from 'preact/hooks';
import { ApiError, get, post } from '../../api/client';
import { useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { ConfigCheck, ConfigPlan, ConfigView } from '../../api/types';
import { JsonView } from '../../components/json-view';
import { Details, Section } from '../../components/page';
import { Loaded } from '../../components/states';
import { notify, report } from '../../components/toast';
import { BackupButton } from './backup';
import { PlanDialog } from './plan-dialog';
import { SettingDialog } from './setting-dialog';

export function ConfigFiles() {
  const [preview, setPreview] = useState<ConfigPlan | null>(null);
  const [isSetting, setSetting] = useState(false);
  const view = useResource<ConfigView>('/config/view');
  const check = useResource<ConfigCheck>('/config/check');
  const open = async () => {
    try {
      setPreview(await get<ConfigPlan>('/config/plan'));
    } catch (error) {
      const hasProblems = error instanceof ApiError && error.code === 'config_invalid';
      notify(hasProblems ? 'The files have errors: see above.' : (error as Error).message, true);
    }
    check.refetch();
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
          <Problems
            warnings={warnings}
            errors={check.data?.ok === false ? check.data.problems : []}
          />
          {can('system:rw') && (
            <div class="actions part-actions">
              <button type="button" onClick={open}>
                Reload …
              </button>
              {can('*') && (
                <button type="button" onClick={() => setSetting(true)}>
                  Change a setting …
                </button>
              )}
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
          {isSetting && <SettingDialog onWritten={open} onClose={() => setSetting(false)} />}
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

interface ProblemsProps {
  warnings: string[];
  /** Of the files, which keep them from being put in force. */
  errors: ConfigCheck['problems'];
}

function Problems({ warnings, errors }: ProblemsProps) {
  if (!warnings.length && !errors.length) {
    return (
      <div class="verdict verdict-good">
        <strong>The configuration has no problems.</strong>
      </div>
    );
  }
  return (
    <section class="why why-bad">
      {errors.length > 0 && (
        <>
          <h2>The files have errors: the configuration below stays in force</h2>
          <ul>
            {errors.map(describeProblem).map((text) => (
              <li key={text}>{text}</li>
            ))}
          </ul>
        </>
      )}
      {warnings.length > 0 && (
        <>
          <h2>Problems of the configuration in force</h2>
          <ul>
            {warnings.map((warning) => (
              <li key={warning}>{warning}</li>
            ))}
          </ul>
        </>
      )}
    </section>
  );
}

/** A problem as `ductile config check` prints it. */
export function describeProblem(problem: ConfigCheck['problems'][number]): string {
  const { file, line, column, path, message, found, allowed, nearest } = problem;
  const place = [file, line, column].filter(Boolean).join(':');
  return [
    [place, path, message].filter(Boolean).join(': '),
    found && `found ${found}`,
    allowed && `allowed: ${allowed}`,
    nearest && `did you mean '${nearest}'?`,
  ]
    .filter(Boolean)
    .join('; ');
}
