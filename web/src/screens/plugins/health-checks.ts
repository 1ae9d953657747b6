// The health of plugins: a screen shows what is known, and only a button runs the health commands.

import { useSignal } from '@preact/signals';
import { get } from '../../api/client';
import { useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { Status } from '../../api/types';
import { report } from '../../components/toast';

/** The state of the gateway without a plugin being run. */
export const LAST_STATUS = '/system/status?health=last';
const CHECK = '/system/status?health=run';

interface HealthChecks {
  /** The newest known state of the gateway. */
  status: Status | null;
  isChecking: boolean;
  check: () => Promise<void>;
}

export function useHealthChecks(): HealthChecks {
  const known = useResource<Status>(can('system:ro') ? LAST_STATUS : null);
  const checked = useSignal<Status | null>(null);
  const isChecking = useSignal(false);
  const check = async () => {
    isChecking.value = true;
    const found = await report(get<Status>(CHECK), 'The health commands have run.');
    if (found) checked.value = found;
    isChecking.value = false;
  };
  return { status: checked.value ?? known.data, isChecking: isChecking.value, check };
}
