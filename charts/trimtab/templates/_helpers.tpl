{{- define "trimtab.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "trimtab.account" -}}
{{ .Values.serviceAccount.name | default (include "trimtab.name" .) }}
{{- end }}

{{- define "trimtab.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/part-of: trimtab
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{ include "trimtab.selector" . }}
{{- end }}

{{/* Jobs let pods with the name trimtab-operator ask for their status. */}}
{{- define "trimtab.selector" -}}
app.kubernetes.io/name: trimtab-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "trimtab.image" -}}
{{ .image.repository | default (printf "%s/%s" .root.Values.registry .name) }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* Verb by verb what the operator does; the election's lease is its own namespace's affair and has a role of its own. */}}
{{- define "trimtab.rules" -}}
- apiGroups: [trimtab.dev]
  resources: [trainingjobs]
  verbs: [get, list, watch, delete]  # delete: spec.ttlSecondsAfterFinished
- apiGroups: [trimtab.dev]
  resources: [trainingjobs/status]
  verbs: [patch]
- apiGroups: [trimtab.dev]
  resources: [trainingjobs/finalizers]  # asked for by blockOwnerDeletion of the children's owner references
  verbs: [update]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [create, get, list, watch, patch, delete]  # delete: a restart of all ranks
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
{{- if not .Values.namespaced }}
- apiGroups: [""]
  resources: [nodes]
  verbs: [get]  # whether the node of a pod that does not end is lost; a Role cannot give this
{{- end }}
- apiGroups: [""]
  resources: [services]
  verbs: [create, get, patch]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get]  # their pull secrets, which those of netmon.imagePullSecrets would displace
- apiGroups: [""]
  resources: [secrets]
  verbs: [create, get]  # those it makes for jobs; never list
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [create, get]  # spec.checkpoint.volumeClaim
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [create, get, patch, delete]  # spec.checkpoint.inMemory; delete: when the job has ended
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create, get, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, list]  # list: only events say why a Job cannot make pods, or a pod not mount its volumes
{{- end }}

{{- define "trimtab.restrictedPod" -}}
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "trimtab.restrictedContainer" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
