import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { session } from '../api/session';

interface PageProps {
  title: string;
  /** Shown above the title: where this belongs. */
  parent?: ComponentChildren;
  /** Next to the title: a badge. */
  mark?: ComponentChildren;
  actions?: ComponentChildren;
  children: ComponentChildren;
}

/** The frame of a screen: title, actions, content. */
export function Page({ title, parent, mark, actions, children }: PageProps) {
  const gateway = session.value?.gateway?.name;
  useEffect(() => {
    document.title = gateway ? `${title} · ${gateway}` : title;
  }, [title, gateway]);
  return (
    <>
      <header class="page-head">
        <div class="page-title">
          {parent && <nav class="crumb">{parent}</nav>}
          <div class="page-name">
            <h1>{title}</h1>
            {mark}
          </div>
        </div>
        {actions && <div class="actions">{actions}</div>}
      </header>
      {children}
    </>
  );
}

interface SectionProps {
  title: string;
  aside?: ComponentChildren;
  children: ComponentChildren;
}

export function Section({ title, aside, children }: SectionProps) {
  return (
    <section class="section">
      <header class="section-head">
        <h2>{title}</h2>
        {aside && <div class="section-aside">{aside}</div>}
      </header>
      {children}
    </section>
  );
}

/** Names and values of one thing; entries without a value are left out. */
export function Details({ entries }: { entries: [string, ComponentChildren][] }) {
  const shown = entries.filter(
    ([, value]) => value !== null && value !== undefined && value !== '',
  );
  return (
    <dl class="details">
      {shown.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
