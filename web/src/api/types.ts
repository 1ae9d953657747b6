// Names for the generated types.

import type { Json } from './json';
import type { components } from './schema';

type Schemas = components['schemas'];

export type JobStatus = Schemas['JobStatus'];
export type JobSummary = Schemas['JobSummary'];
export type JobPage = Schemas['JobPage'];
export type Job = Schemas['Job'];
export type Attempt = Schemas['Attempt'];
export type AttemptPage = Schemas['AttemptPage'];
export type Progress = Schemas['Progress'];
export type JobFailures = Schemas['Failures'];
export type JobFailure = Schemas['Failure'];
export type JobReasons = Schemas['JobReasons'];
export type TreeNode = Schemas['Node'];
export type JobTree = Schemas['JobTree'];
export type Backup = Schemas['Backup'];
export type BackupPlan = Schemas['BackupPlan'];
export type BulkResult = Schemas['BulkResult'];
export type Schedule = Schemas['Schedule'] & { payload: Json };
export type Schedules = Omit<Schemas['Schedules'], 'schedules'> & { schedules: Schedule[] };
export type Fires = Schemas['Fires'];
export type Occurrences = Schemas['Occurrences'];
export type Pipelines = Schemas['Pipelines'];
export type Pipeline = Schemas['Pipeline'];
export type PipelineStep = Schemas['Step'];
export type PipelinePlan = Schemas['PipelinePlan'];
export type PipelineRuns = Schemas['Runs'];
export type PipelineRun = Schemas['RunSummary'];
export type PipelineRunDetail = Schemas['Run'];
export type RunStep = Schemas['RunStep'];
export type Plugins = Schemas['Plugins'];
export type PluginDetail = Schemas['PluginDetail'];
export type PluginSandbox = Schemas['PluginSandbox'];
export type PluginStart = Schemas['PluginStart'];
export type Command = Schemas['Command'];
export type Status = Schemas['Status'];
export type Health = Schemas['Health'];
export type Breakers = Schemas['Breakers'];
export type Facts = Schemas['Facts'];
export type AnalyticsHours = Schemas['AnalyticsHours'];
export type ClusterNode = Schemas['ClusterNode'];
export type ClusterNodes = Schemas['ClusterNodes'];
export type Pause = Schemas['Pause'];
export type Pauses = Schemas['Pauses'];
export type Approval = Schemas['Approval'];
export type Approvals = Schemas['Approvals'];
export type AlertRule = Schemas['AlertRule'];
export type AlertRules = Schemas['AlertRules'];
export type AlertRuleDetail = Schemas['AlertRuleDetail'];
export type Webhook = Schemas['Webhook'];
export type Webhooks = Schemas['Webhooks'];
export type Deliveries = Schemas['Deliveries'];
export type DeliveryDetail = Schemas['DeliveryDetail'];
export type DeliveryStatus = Schemas['DeliveryStatus'];
export type DeliveriesRetry = Schemas['DeliveriesRetry'];
export type Agents = Schemas['Agents'];
export type Reminders = Schemas['Reminders'];
export type Relays = Schemas['Relays'];
export type ConfigCheck = Schemas['ConfigCheck'];
export type ConfigPlan = Schemas['ConfigPlan'];
export type ConfigApplied = Schemas['ConfigApplied'];
export type SettingChanged = Schemas['SettingChanged'];
export type PluginComparison = Schemas['PluginComparison'];
export type ComparedJob = Schemas['ComparedJob'];
export type RunComparison = Schemas['RunComparison'];
export type ComparedRun = Schemas['ComparedRun'];
export type PluginTrial = Schemas['PluginTrial'];
export type FileChange = Schemas['FileChange'];
export type Snapshots = Schemas['Snapshots'];
export type ConfigView = Schemas['ConfigView'];
export type Tokens = Schemas['Tokens'];
export type Token = Schemas['Token'];
export type AuditPage = Schemas['AuditPage'];
export type Notices = Schemas['Notices'];

/** `GET /system/overview`; the rows of its lists have no model of their own. */
export type Overview = Omit<
  Schemas['Overview'],
  'running' | 'waiting' | 'failures' | 'breakers' | 'next'
> & {
  running: RunningJob[];
  waiting: { plugin: string; jobs: number }[];
  failures: RecentFailure[];
  breakers: { plugin: string; command: string; state: string; opened_at: string | null }[];
  next: { plugin: string; schedule: string; rule: string; next_run: string; state: string }[];
};

export interface RunningJob {
  job_id: string;
  plugin: string;
  command: string;
  attempt: number;
  started_at: string | null;
  /** Only of a job that reports it. */
  progress?: Progress;
}

export interface RecentFailure {
  job_id: string;
  plugin: string;
  command: string;
  status: JobStatus;
  attempt: number;
  completed_at: string;
  error: string | null;
}

export interface Session {
  name: string;
  scopes: string[];
  expires_at: string;
  gateway?: { name: string; version: string; timezone: string };
}

/** One event of the event stream. */
export interface GatewayEvent {
  id: string;
  topic: string;
  type: string;
  at: string;
  data: Json;
}
