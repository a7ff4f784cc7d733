{{- define "smg.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains "smg" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-smg" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that choose the pods of a part: (list $ "router"). They never change. */}}
{{- define "smg.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: smg
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* All labels of an object of a part: (list $ "router"). */}}
{{- define "smg.labels" -}}
{{- $root := index . 0 -}}
{{ include "smg.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- with $root.Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of the pods of a part. Without versions of the chart: a new chart alone restarts no pod. */}}
{{- define "smg.podLabels" -}}
{{ include "smg.selector" . }}
{{- with (index . 0).Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Name and tag of an image: (list $ $image). */}}
{{- define "smg.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{ printf "%s:%s" $image.repository (default $root.Chart.AppVersion $image.tag) }}
{{- end -}}

{{- define "smg.discoveryNamespace" -}}
{{- default .Release.Namespace .Values.discovery.namespace -}}
{{- end -}}

{{/* Labels of the pods that are engines, as YAML. */}}
{{- define "smg.engineSelector" -}}
{{- if .Values.discovery.selector -}}
{{ toYaml .Values.discovery.selector }}
{{- else -}}
{{ include "smg.selector" (list . "engine") }}
{{- end -}}
{{- end -}}

{{/* What every container of ours may do: nothing that it does not need. */}}
{{- define "smg.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "smg.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* Pods of a part on different nodes and zones where that is possible: (list $ "router"). */}}
{{- define "smg.spread" -}}
{{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ $key }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "smg.selector" $ | nindent 6 }}
{{- end }}
{{- end -}}

{{/* Ports of a service for clients: (list $ $httpPort). */}}
{{- define "smg.clientPorts" -}}
{{- $isTls := not (empty (index . 0).Values.router.tlsSecretName) -}}
- {name: http, port: {{ index . 1 }}, targetPort: http, appProtocol: {{ ternary "https" "http" $isTls }}}
- {name: grpc, port: 30001, targetPort: grpc{{ if not $isTls }}, appProtocol: kubernetes.io/h2c{{ end }}}
{{- end -}}
