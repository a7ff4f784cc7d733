{{/* The router's settings: those that the chart's own objects depend on, over what the values say. */}}
{{- define "smg.settings" -}}
{{- $drain := .Values.router.drain -}}
{{- $listener := dict "host" "0.0.0.0" "port" 30000 "grpc_port" 30001
      "shutdown_delay_secs" $drain.delaySeconds "shutdown_grace_period_secs" $drain.graceSeconds -}}
{{- $telemetry := dict "prometheus_port" 29000 "prometheus_host" "0.0.0.0" -}}
{{- $own := dict "listener" $listener "fleet" (dict "health_check_port" 30002) "telemetry" $telemetry -}}
{{- if .Values.discovery.enabled -}}
{{- $selector := list -}}
{{- range $name, $value := include "smg.engineSelector" . | fromYaml -}}
{{- $selector = append $selector (printf "%s=%s" $name $value) -}}
{{- end -}}
{{- $_ := set $own "discovery" (dict "service_discovery" true "selector" $selector
      "service_discovery_port" .Values.discovery.port
      "service_discovery_namespace" (include "smg.discoveryNamespace" .)) -}}
{{- end -}}
{{- if .Values.router.tlsSecretName -}}
{{- $_ := set $own "tls" (dict "tls_cert_path" "/certs/tls.crt" "tls_key_path" "/certs/tls.key") -}}
{{- end -}}
{{- $defaults := dict "telemetry" (dict "log_json" true) -}}
{{- toYaml (mustMergeOverwrite $defaults (deepCopy .Values.router.settings) $own) -}}
{{- end -}}
