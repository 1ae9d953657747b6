// A backup of the ledger, after a look at where it will be written.

import { useState } from 'preact/hooks';
import { get, post } from '../../api/client';
import type { Backup, BackupPlan } from '../../api/types';
import { ask } from '../../components/dialog';
import { notify } from '../../components/toast';
import { formatBytes } from '../../format/text';

const ADDRESS = '/system/backup';
const UNDER_WAY = ['copying', 'checking'];
/** Seconds that the gateway holds one answer back while the backup runs. */
const WAIT_SECONDS = 20;

export function BackupButton() {
  const [isRunning, setIsRunning] = useState(false);
  const start = async () => {
    try {
      const plan = await post<BackupPlan>(ADDRESS, { dry_run: true });
      const isSure = await ask({
        title: 'Back up the ledger?',
        text: describePlan(plan),
        confirm: 'Back up',
      });
      if (!isSure) return;
      setIsRunning(true);
      const { error, path } = await finish(await post<Backup>(ADDRESS, {}));
      notify(error ?? `The backup is ${path}.`, error !== null);
    } catch (failure) {
      notify((failure as Error).message, true);
    } finally {
      setIsRunning(false);
    }
  };
  return (
    <button type="button" disabled={isRunning} onClick={start}>
      {isRunning ? 'Backing up …' : 'Back up …'}
    </button>
  );
}

export function describePlan({ path, free }: BackupPlan): string {
  const room = free === null ? '' : ` There, ${formatBytes(free)} are free.`;
  return `Jobs continue meanwhile. The gateway writes ${path}.${room}`;
}

async function finish(backup: Backup): Promise<Backup> {
  let last = backup;
  while (UNDER_WAY.includes(last.state)) {
    last = await get<Backup>(`${ADDRESS}?wait=${WAIT_SECONDS}`);
  }
  return last;
}
