import { useState } from 'preact/hooks';
import { path, post, remove } from '../../api/client';
import { useResource } from '../../api/resource';
import { can, startSession } from '../../api/session';
import type { Token, Tokens } from '../../api/types';
import { Badge } from '../../components/badge';
import { ask } from '../../components/dialog';
import { FormDialog, type FormField, type FormValues } from '../../components/form-dialog';
import { Empty, Loaded } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Time } from '../../components/time';
import { report } from '../../components/toast';
import { countOf } from '../../format/text';
import { SecretDialog } from '../webhooks/new-webhook-dialog';

interface Actions {
  revoke: (token: Token) => void;
  rotate: (token: Token) => void;
}

/** What a lease may still do, such as `runs 3/20`. */
export function budgetText(budget: Token['budget']): string {
  if (!budget) return '';
  return (['runs', 'retries'] as const)
    .filter((name) => budget[name].limit !== null)
    .map((name) => `${name} ${budget[name].left}/${budget[name].limit}`)
    .join(', ');
}

function columns({ revoke, rotate }: Actions): Column<Token>[] {
  return [
    {
      id: 'name',
      title: 'Token',
      cell: ({ name }) => <strong>{name}</strong>,
      sortBy: ({ name }) => name,
    },
    {
      id: 'scopes',
      title: 'Scopes',
      cell: ({ scopes }) => scopes.map((scope) => <code key={scope}>{scope} </code>),
    },
    {
      id: 'state',
      title: 'State',
      cell: ({ revoked_at }) =>
        revoked_at ? <Badge status="dead" label="revoked" /> : <Badge status="active" />,
    },
    {
      id: 'created',
      title: 'Created',
      wide: true,
      cell: (token) => <Time at={token.created_at} />,
    },
    {
      id: 'expires',
      title: 'Expires',
      cell: ({ expires_at }) => (expires_at ? <Time at={expires_at} relative /> : 'never'),
    },
    {
      id: 'budget',
      title: 'Budget left',
      cell: ({ budget }) => budgetText(budget),
    },
    {
      id: 'actions',
      title: '',
      align: 'right',
      cell: (token) =>
        can('*') &&
        !token.revoked_at && (
          <span class="row-actions">
            <button type="button" onClick={() => rotate(token)}>
              Rotate …
            </button>
            <button type="button" class="danger-quiet" onClick={() => revoke(token)}>
              Revoke …
            </button>
          </span>
        ),
    },
  ];
}

async function endSessions(): Promise<void> {
  const isSure = await ask({
    title: 'End all sessions of the dashboard?',
    text: 'Everyone has to log in again, you too. The tokens stay valid.',
    confirm: 'End the sessions',
    isDestructive: true,
  });
  if (!isSure) return;
  await report(
    remove<{ closed: number }>('/ui/sessions'),
    ({ closed }) => `${countOf(closed, 'session')} ended.`,
  );
  // This session has ended too: the next request asks for a login.
  await startSession();
}

export function TokenList() {
  const [secret, setSecret] = useState('');
  const [isCreating, setCreating] = useState(false);
  const list = useResource<Tokens>('/tokens');
  const revoke = async ({ id, name }: Token) => {
    const isSure = await ask({
      title: `Revoke ${name}?`,
      text: 'Requests with it are refused, and its sessions end at once. This cannot be undone.',
      confirm: 'Revoke the token',
      isDestructive: true,
    });
    if (isSure) await report(post(path('token', id, 'revoke')), 'The token is revoked.');
    list.refetch();
  };
  const rotate = async ({ id, name }: Token) => {
    const isSure = await ask({
      title: `Rotate ${name}?`,
      text: 'It gets a new secret, and the present one is refused from then on.',
      confirm: 'Rotate the token',
      isDestructive: true,
    });
    if (!isSure) return;
    const sent = post<{ token: string }>(path('token', id, 'rotate'));
    const changed = await report(sent, 'The token has a new secret.');
    if (changed) setSecret(changed.token);
    list.refetch();
  };
  return (
    <>
      {can('*') && (
        <div class="actions part-actions">
          <button type="button" onClick={() => setCreating(true)}>
            New token …
          </button>
          <button type="button" class="danger-quiet" onClick={endSessions}>
            End all sessions …
          </button>
        </div>
      )}
      <Loaded resource={list}>
        {({ tokens }) =>
          tokens.length ? (
            <Table
              rows={tokens}
              columns={columns({ revoke, rotate })}
              keyOf={({ id }) => id}
              label="Tokens"
            />
          ) : (
            <Empty title="The ledger has no tokens">
              Tokens of the configuration are not listed. Create one here or with{' '}
              <code>ductile token create</code>.
            </Empty>
          )
        }
      </Loaded>
      {isCreating && (
        <NewTokenDialog
          onCreated={(token) => {
            setSecret(token);
            setCreating(false);
            list.refetch();
          }}
          onClose={() => setCreating(false)}
        />
      )}
      {secret && <SecretDialog title="The token" secret={secret} onClose={() => setSecret('')} />}
    </>
  );
}

interface NewTokenDialogProps {
  onCreated: (token: string) => void;
  onClose: () => void;
}

const FIELDS: readonly FormField[] = [
  { name: 'name', label: 'Name', isRequired: true },
  {
    name: 'scopes',
    label: 'Scopes',
    isRequired: true,
    placeholder: 'jobs:ro events:ro',
    hint: (
      <>
        <code>*</code>, or a noun (jobs, events, system, agents, approvals, plugin) or a plugin with{' '}
        <code>:ro</code> or <code>:rw</code>
      </>
    ),
  },
  { name: 'expires', label: 'Expires after', placeholder: 'never, or 30d' },
  {
    name: 'runs',
    label: 'Runs that it may start',
    pattern: '[0-9]+',
    placeholder: 'any number, or 20',
  },
  {
    name: 'retries',
    label: 'Retries that it may request',
    pattern: '[0-9]+',
    placeholder: 'any number, or 50',
    hint: 'With one of these limits it is a lease: each of its runs is in the audit log.',
  },
];

/** The request for a token; its limits make it a lease. */
export function tokenRequest({ name, scopes, expires, runs, retries }: FormValues) {
  const limits = Object.entries({ runs, retries }).filter(([, limit]) => limit !== undefined);
  return {
    name,
    scopes: String(scopes)
      .split(/[\s,]+/)
      .filter(Boolean),
    expires_in: expires,
    budget: limits.length
      ? Object.fromEntries(limits.map(([noun, limit]) => [noun, Number(limit)]))
      : undefined,
  };
}

function NewTokenDialog({ onCreated, onClose }: NewTokenDialogProps) {
  const create = async (values: FormValues) => {
    const { token } = await post<{ token: string }>('/tokens', tokenRequest(values));
    onCreated(token);
  };
  return (
    <FormDialog
      title="New token"
      fields={FIELDS}
      confirm="Create"
      onSubmit={create}
      onClose={onClose}
    />
  );
}
