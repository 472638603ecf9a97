{{/* Name in front of all objects' names; short enough for what is appended to it. */}}
{{- define "elastic.name" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "elastic.operatorName" -}}
{{- printf "%s-operator" (include "elastic.name" .) -}}
{{- end }}

{{/* Whose rights the operator has. */}}
{{- define "elastic.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "elastic.operatorName" .) -}}
{{- end }}

{{/* The class of the operator's pods that the chart makes; "" where another one is named, or none is to be made. */}}
{{- define "elastic.ownPriorityClass" -}}
{{- if and .Values.priorityClasses.create (not .Values.priorityClassName) -}}
{{- include "elastic.operatorName" . -}}
{{- end -}}
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
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* An image's full name: of `image`, and of the chart for what that leaves out. */}}
{{- define "elastic.reference" -}}
{{- $missing := "image.registry is not set: the operator's images are not published. Build and push them as docs/release.md says, and name your registry, as in --set image.registry=registry.example.com/team" -}}
{{- $registry := required $missing .chart.Values.image.registry -}}
{{- $name := printf "%s/%s" (.image.registry | default $registry) .image.repository -}}
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
{{- $images := dict "workerImage" $worker "workerImagePullSecrets" .Values.workerImage.pullSecrets -}}
{{- $access := dict "authorizeMetrics" .Values.metrics.authorization -}}
{{- toYaml (merge $images $access .Values.settings) -}}
{{- end }}

{{/* "yes" where a thing of the Prometheus operator is wanted: `enabled` is true, or auto and the cluster has the API. */}}
{{- define "elastic.monitored" -}}
{{- $enabled := toString .enabled -}}
{{- $served := .chart.Capabilities.APIVersions.Has "monitoring.coreos.com/v1" -}}
{{- if or (eq $enabled "true") (and (eq $enabled "auto") $served) -}}yes{{- end -}}
{{- end }}

{{/* How the operator is scraped. Its own labels job and namespace are those of a training job: they must win. */}}
{{- define "elastic.endpoint" -}}
port: http
path: /metrics
interval: {{ .monitor.interval }}
honorLabels: true
{{- if .chart.Values.metrics.authorization }}
authorization:
  type: Bearer
  credentials:
    name: {{ include "elastic.readerName" .chart }}
    key: token
{{- end }}
{{- end }}

{{/* Who reads metrics where not everybody may: a role, an account that has it, and the Secret with its token. */}}
{{- define "elastic.readerName" -}}
{{- printf "%s-metrics-reader" (include "elastic.name" .) -}}
{{- end }}

{{/*
The alerts, as a PrometheusRule holds them. In files/alerts.yaml stands <name> for the threshold of that name: what
stands in braces there is Prometheus's to fill in.
*/}}
{{- define "elastic.alerts" -}}
{{- $text := .chart.Files.Get "files/alerts.yaml" -}}
{{- range $name, $value := merge (dict "runbookUrl" .rule.runbookUrl) .rule.thresholds -}}
{{- $text = $text | replace (printf "<%s>" $name) (toString $value) -}}
{{- end -}}
{{- $groups := list -}}
{{- range $group := (fromYaml $text).groups -}}
{{- $rules := list -}}
{{- range $alert := $group.rules -}}
{{- if not (has $alert.alert $.rule.disabled) -}}
{{- $rules = append $rules (merge (dict "labels" (merge (dict) $.rule.alertLabels $alert.labels)) $alert) -}}
{{- end -}}
{{- end -}}
{{- if $rules -}}
{{- $groups = append $groups (dict "name" $group.name "rules" $rules) -}}
{{- end -}}
{{- end -}}
{{- toYaml (dict "groups" $groups) -}}
{{- end }}

{{/* Of the pod of `helm test`: not the operator's name, or its Service would take it for one of the operator's pods. */}}
{{- define "elastic.testLabels" -}}
app.kubernetes.io/name: elastic-operator-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Of each ResourceQuota for plain pods: QUOTA_NAME of build/resource_quota.py. */}}
{{- define "elastic.quotaName" -}}
elastic-pytorch-plain-pods
{{- end }}

{{/* Where a job's launchers tell their state: STATUS_PORT of elastic_worker/contract.py. */}}
{{- define "elastic.statusPort" -}}
29401
{{- end }}

{{/*
Stops an installation beside another one: both would grant the same GPUs. Without a cluster to look at (`helm template`)
nothing is found.
*/}}
{{- define "elastic.onlyRelease" -}}
{{- range $role := (lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "").items -}}
{{- $labels := $role.metadata.labels | default dict -}}
{{- $notes := $role.metadata.annotations | default dict -}}
{{- if and (eq (get $labels "app.kubernetes.io/part-of") "elastic-pytorch") (hasKey $notes "meta.helm.sh/release-name") -}}
{{- $name := get $notes "meta.helm.sh/release-name" -}}
{{- $namespace := get $notes "meta.helm.sh/release-namespace" -}}
{{- if or (ne $name $.Release.Name) (ne $namespace $.Release.Namespace) -}}
{{- fail (printf "this cluster has the release %q in the namespace %q already, and one operator grants the GPUs of the whole cluster: upgrade it with `helm upgrade %s CHART --namespace %s`, or take it away first with `helm uninstall %s --namespace %s` (jobs and their pods stay)" $name $namespace $name $namespace $name $namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
