export type Tone = 'live' | 'good' | 'bad' | 'wait' | 'quiet';

const known: Record<string, { label: string; tone: Tone }> = {
  active: { label: 'Running', tone: 'live' },
  running: { label: 'Running', tone: 'live' },
  waiting: { label: 'Queued', tone: 'quiet' },
  completed: { label: 'Completed', tone: 'good' },
  failed: { label: 'Failed', tone: 'bad' },
  interrupted: { label: 'Stopped', tone: 'quiet' },
  paused: { label: 'Paused', tone: 'quiet' },
  suspended_client_tool: { label: 'Waits for you', tone: 'wait' },
  suspended_awaiting_children: { label: 'Waits for sub-agents', tone: 'live' },
  continued: { label: 'Continued', tone: 'quiet' },
  suspended_step_partial: { label: 'Suspended', tone: 'wait' },
};

export const statusOf = (status: string) => known[status] ?? { label: status.replaceAll('_', ' '), tone: 'quiet' as const };

/** The statuses of sessions, for filters. */
export const sessionStatuses = ['active', 'completed', 'failed', 'interrupted', 'paused', 'suspended_client_tool', 'suspended_awaiting_children', 'suspended_step_partial'];

/** executes tells whether a run moves without a person. */
export const executes = (status: string) => ['running', 'waiting', 'active', 'suspended_awaiting_children'].includes(status);
