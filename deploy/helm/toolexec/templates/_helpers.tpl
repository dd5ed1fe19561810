{{/* The name of a server's objects: the release's, and what it is. */}}
{{- define "toolexec.name" -}}
{{- printf "%s-%s" (trunc 50 .root.Release.Name | trimSuffix "-") .part -}}
{{- end -}}

{{- define "toolexec.selector" -}}
app.kubernetes.io/name: toolexec
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "toolexec.metadata" -}}
name: {{ include "toolexec.name" . }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "toolexec.selector" . | nindent 2 }}
{{- end -}}
