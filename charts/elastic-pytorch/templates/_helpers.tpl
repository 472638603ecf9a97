{{/* Name in front of all objects' names; short enough for what is appended to it. */}}
{{- define "elastic.name" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "elastic.operatorName" -}}
{{- printf "%s-operator" (include "elastic.name" .) -}}
{{- end }}

{{- define "elastic.selectorLabels" -}}
app.kubernetes.io/name: elastic-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "elastic.labels" -}}
{{ include "elastic.selectorLabels" . }}
app.kubernetes.io/part-of: elastic-pytorch
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "elastic.image" -}}
{{- $name := printf "%s/%s" .Values.image.registry .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $name .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end }}

{{/* The file the operator reads. */}}
{{- define "elastic.settings" -}}
{{- toYaml .Values.settings -}}
{{- end }}
