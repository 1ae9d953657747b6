import type { ComponentChildren } from 'preact';
import { hrefOf, navigate } from './router';

interface LinkProps {
  to: string;
  children: ComponentChildren;
  class?: string | undefined;
  title?: string | undefined;
  'aria-current'?: 'page' | undefined;
  'aria-label'?: string | undefined;
}

/** A link to another screen that does not load the page anew. */
export function Link({ to, children, ...rest }: LinkProps) {
  const follow = (event: MouseEvent) => {
    const isPlain = event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey);
    if (!isPlain || event.altKey) return;
    event.preventDefault();
    navigate(to);
  };
  return (
    <a href={hrefOf(to)} onClick={follow} {...rest}>
      {children}
    </a>
  );
}
