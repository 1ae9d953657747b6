// What a configuration would change, before it is put in force.

import type { ConfigPlan, FileChange } from '../../api/types';
import { Dialog } from '../../components/dialog';
import { countOf } from '../../format/text';
import { formatTime } from '../../format/time';

const SHOWN_FIRES = 3;

/** A line of a plan; its sign is that of a difference. */
interface PlanLine {
  sign: '+' | '−' | '~';
  text: string;
}

interface PlanGroup {
  title: string;
  lines: PlanLine[];
}

interface PlanDialogProps {
  title: string;
  plan: ConfigPlan;
  files?: FileChange[];
  confirm: string;
  onConfirm: () => void;
  onClose: () => void;
}

export function PlanDialog({
  title,
  plan,
  files = [],
  confirm,
  onConfirm,
  onClose,
}: PlanDialogProps) {
  const groups = [{ title: 'Files', lines: files.map(describeFile) }, ...describePlan(plan)].filter(
    ({ lines }) => lines.length,
  );
  return (
    <Dialog title={title} onClose={onClose} wide>
      <div class="dialog-body">
        {plan.restart.map(({ setting, message }) => (
          <p key={setting} class="problem">
            {setting} needs a restart: {message}
          </p>
        ))}
        {groups.map((group) => (
          <section key={group.title}>
            <h3>{group.title}</h3>
            <ul class="diff">
              {group.lines.map(({ sign, text }) => (
                <li key={sign + text} class={`diff-${CLASSES[sign]}`}>
                  {sign} {text}
                </li>
              ))}
            </ul>
          </section>
        ))}
        {!groups.length && <p>Nothing would change.</p>}
        {plan.warnings.map((warning) => (
          <p key={warning} class="problem">
            {warning}
          </p>
        ))}
        {Object.entries(plan.refused).map(([plugin, reason]) => (
          <p key={plugin} class="problem">
            {plugin} cannot be loaded: {reason}
          </p>
        ))}
      </div>
      <footer class="dialog-foot">
        <button type="button" onClick={onClose}>
          Keep the current one
        </button>
        <button
          type="button"
          class="primary"
          disabled={plan.restart.length > 0}
          onClick={onConfirm}
        >
          {confirm}
        </button>
      </footer>
    </Dialog>
  );
}

const CLASSES = { '+': 'add', '−': 'remove', '~': 'change' } as const;

const SIGNS: Record<string, PlanLine['sign']> = {
  added: '+',
  opens: '+',
  created: '+',
  released: '+',
  removed: '−',
  closes: '−',
  ended: '−',
  fails: '−',
};

function lineOf(change: string, text: string): PlanLine {
  return { sign: SIGNS[change] ?? '~', text };
}

function describeFile({ file, change, moved_to }: FileChange): PlanLine {
  return lineOf(change, `${file} ${change}${moved_to ? ` to ${moved_to}` : ''}`);
}

export function describePlan(plan: ConfigPlan): PlanGroup[] {
  const { graph } = plan;
  const named = [
    ...graph.routes.map((row) => ({ noun: 'route', ...row })),
    ...graph.pipelines.map((row) => ({ noun: 'pipeline', ...row })),
    ...graph.steps.map((row) => ({ noun: 'step', ...row })),
  ];
  return [
    { title: 'Schedules', lines: plan.schedules.flatMap(describeSchedule) },
    {
      title: 'Routes and pipelines',
      lines: [
        ...graph.edges_added.map((edge) => lineOf('added', edge)),
        ...graph.edges_removed.map((edge) => lineOf('removed', edge)),
        ...named.map(({ noun, name, change, fields }) =>
          lineOf(change, `${noun} ${name}${listOf(fields)}`),
        ),
      ],
    },
    {
      title: 'Plugins',
      lines: plan.plugins.map(({ plugin, before, after, differs }) =>
        lineOf('changed', `${plugin}${arrow(before, after)}${listOf(differs)}`),
      ),
    },
    {
      title: 'Queued jobs',
      lines: plan.jobs.map(({ effect, jobs, plugin, command, reason }) =>
        lineOf(effect, `${countOf(jobs, 'job')} of ${plugin}.${command} ${effect}: ${reason}`),
      ),
    },
    {
      title: 'Webhooks and tokens',
      lines: [
        ...plan.webhooks.map(({ change, path, fields }) =>
          lineOf(change, `${path} ${change}${listOf(fields)}`),
        ),
        ...plan.tokens.map(({ change, token, fields }) =>
          lineOf(change, `token ${token} ${change}${listOf(fields)}`),
        ),
      ],
    },
    {
      title: 'Settings',
      lines: [
        ...plan.settings.map(({ setting, before, after }) =>
          lineOf('changed', `${setting}: ${JSON.stringify(before)} → ${JSON.stringify(after)}`),
        ),
        ...plan.secrets.map((place) => lineOf('changed', `secret ${place}`)),
      ],
    },
  ];
}

function describeSchedule(row: ConfigPlan['schedules'][number]): PlanLine[] {
  const rules = arrow(row.before ?? '', row.after ?? '') || ` ${row.after ?? row.before}`;
  return [
    lineOf(row.change, `${row.schedule}${rules}${row.paused ? ', paused' : ''}`),
    ...describeFires('added', row.appear),
    ...describeFires('removed', row.disappear),
  ];
}

type Fires = ConfigPlan['schedules'][number]['appear'];

function describeFires(change: string, { count, first }: Fires): PlanLine[] {
  if (!count) return [];
  const times = first.slice(0, SHOWN_FIRES).map(({ fires_at }) => formatTime(fires_at));
  const more = count > SHOWN_FIRES ? ', …' : '';
  return [lineOf(change, `${countOf(count, 'fire')} in 7 days: ${times.join(', ')}${more}`)];
}

function arrow(before: string, after: string): string {
  return before === after ? '' : ` ${[before, after].filter(Boolean).join(' → ')}`;
}

function listOf(words: string[]): string {
  return words.length ? ` (${words.join(', ')})` : '';
}
