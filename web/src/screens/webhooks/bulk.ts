// One action on many deliveries or relayed events, after a preview of what it touches.

import { post } from '../../api/client';
import type { Json } from '../../api/json';
import { ask } from '../../components/dialog';
import { notify, report } from '../../components/toast';
import { countOf } from '../../format/text';

interface BulkPlan {
  count: number;
  more: boolean;
  deliveries?: number[];
  relays?: string[];
}

interface BulkRequest {
  address: string;
  body?: Record<string, Json | undefined>;
  /** `Retry` or `Discard`. */
  verb: 'Retry' | 'Discard';
  nouns: [string, string];
  effect: string;
  /** The route refuses to touch another number than the preview has shown. */
  isCounted?: boolean;
}

const SHOWN = 20;

/** Asks the gateway what would be touched, then the operator, and sends the request. */
export async function runBulk(request: BulkRequest, onDone: () => void): Promise<void> {
  const { address, body, verb, nouns, effect, isCounted } = request;
  const send = (terms: Record<string, Json>) => post<BulkPlan>(address, { ...body, ...terms });
  try {
    const plan = await send({ dry_run: true });
    if (!plan.count) {
      notify(`There are no ${nouns[1]} to ${verb.toLowerCase()}.`);
      return;
    }
    const isSure = await ask({
      title: `${verb} ${countOf(plan.count, ...nouns)}?`,
      text: `${effect} ${describePlan(plan)}`,
      confirm: `${verb} them`,
      isDestructive: verb === 'Discard',
    });
    if (isSure) {
      const done = verb === 'Retry' ? 'sent again' : 'discarded';
      const terms = isCounted ? { expected: plan.count } : {};
      await report(send(terms), ({ count }) => `${countOf(count, ...nouns)} ${done}.`);
    }
    onDone();
  } catch (error) {
    notify((error as Error).message, true);
  }
}

export function describePlan({ count, more, deliveries, relays }: BulkPlan): string {
  const ids = (deliveries ?? relays ?? []).slice(0, SHOWN);
  const rest = count > ids.length ? ' …' : '';
  return `${ids.join(', ')}${rest}${more ? ' There are more; this touches the first of them.' : ''}`;
}
