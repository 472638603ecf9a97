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

{{/* An image's full name: of `image`, and of the chart for what that leaves out. */}}
{{- define "elastic.reference" -}}
{{- $name := printf "%s/%s" (.image.registry | default .chart.Values.image.registry) .image.repository -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (.image.tag | default .chart.Chart.AppVersion) -}}
{{- end -}}
{{- end }}

{{- define "elastic.image" -}}
{{- include "elastic.reference" (dict "image" .Values.image "chart" .) -}}
{{- end }}

{{/* The file the operator reads. */}}
{{- define "elastic.settings" -}}
{{- $worker := include "elastic.reference" (dict "image" .Values.workerImage "chart" .) -}}
{{- toYaml (merge (dict "workerImage" $worker) .Values.settings) -}}
{{- end }}
