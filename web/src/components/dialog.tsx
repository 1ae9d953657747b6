// Questions before an action. One dialog is open at a time; Escape closes it.

import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  wide?: boolean;
  /** A click outside closes it too; not where text that was entered would be lost. */
  isLight?: boolean;
}

export function Dialog({ title, onClose, children, wide, isLight }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = element.current;
    const opener = document.activeElement;
    dialog?.showModal();
    // Not the button that closes it, which is the first element.
    dialog?.querySelector<HTMLElement>('input, textarea, select, footer button')?.focus();
    return () => {
      dialog?.close();
      // The browser does not return the focus of a dialog that is removed at once.
      setTimeout(() => {
        if (document.activeElement === document.body) (opener as HTMLElement | null)?.focus();
      });
    };
  }, []);
  return (
    <dialog
      ref={element}
      class={wide ? 'dialog dialog-wide' : 'dialog'}
      aria-label={title}
      closedby={isLight ? 'any' : 'closerequest'}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      <header class="dialog-head">
        <h2>{title}</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={onClose}>
          ✕
        </button>
      </header>
      {children}
    </dialog>
  );
}

interface Question {
  title: string;
  text: ComponentChildren;
  /** The verb of the button. */
  confirm: string;
  isDestructive?: boolean;
  answer: (confirmed: boolean) => void;
}

const question = signal<Question | null>(null);

/** Asks before an action; resolves to whether to go ahead. */
export function ask(options: Omit<Question, 'answer'>): Promise<boolean> {
  return new Promise((resolve) => {
    question.value = {
      ...options,
      answer: (confirmed) => {
        question.value = null;
        resolve(confirmed);
      },
    };
  });
}

/** Shows the question of `ask`; part of the shell. */
export function QuestionDialog() {
  const current = question.value;
  if (!current) return null;
  return (
    <Dialog title={current.title} onClose={() => current.answer(false)} isLight>
      <div class="dialog-body">{current.text}</div>
      <footer class="dialog-foot">
        <button type="button" onClick={() => current.answer(false)}>
          Keep it as it is
        </button>
        <button
          type="button"
          class={current.isDestructive ? 'danger' : 'primary'}
          onClick={() => current.answer(true)}
        >
          {current.confirm}
        </button>
      </footer>
    </Dialog>
  );
}
