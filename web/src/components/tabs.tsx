import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { queryValue, setQuery } from '../router/router';

interface Tab {
  id: string;
  label: string;
  content: () => ComponentChildren;
}

/** Scrolls a row that is wider than a phone, so that the chosen one of its items is visible. */
export function scrollToChosen(row: HTMLElement | null, selector: string) {
  const item = row?.querySelector<HTMLElement>(selector);
  if (row && item) row.scrollLeft = item.offsetLeft - (row.clientWidth - item.offsetWidth) / 2;
}

/** Tabs whose choice is in the address, as `tab`. */
export function Tabs({ tabs, label }: { tabs: Tab[]; label: string }) {
  const first = tabs[0]?.id ?? '';
  const chosen = queryValue('tab', first);
  const current = tabs.find((tab) => tab.id === chosen) ?? tabs[0];
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => scrollToChosen(list.current, '[aria-selected="true"]'), [current?.id]);
  const choose = (id: string) => setQuery({ tab: id === first ? null : id });
  const move = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const index = tabs.findIndex((tab) => tab.id === current?.id);
    const next = step && tabs[(index + step + tabs.length) % tabs.length];
    if (!next) return;
    choose(next.id);
    document.getElementById(`tab-${next.id}`)?.focus();
  };
  return (
    <>
      <div class="tabs" role="tablist" aria-label={label} onKeyDown={move} ref={list}>
        {tabs.map(({ id, label: text }) => (
          <button
            type="button"
            role="tab"
            key={id}
            id={`tab-${id}`}
            aria-selected={id === current?.id}
            aria-controls="tab-panel"
            tabIndex={id === current?.id ? 0 : -1}
            onClick={() => choose(id)}
          >
            {text}
          </button>
        ))}
      </div>
      <div id="tab-panel" role="tabpanel" aria-labelledby={`tab-${current?.id}`}>
        {current?.content()}
      </div>
    </>
  );
}
