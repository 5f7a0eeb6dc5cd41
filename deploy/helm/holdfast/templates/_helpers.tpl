{{- define "holdfast.labels" -}}
app.kubernetes.io/name: holdfast
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .service }}
{{- end }}

{{- define "holdfast.port" -}}
{{- get (dict "state" 7411 "stream" 7412 "executor" 7413 "gateway" 8080) . -}}
{{- end }}

{{- define "holdfast.secret" -}}
{name: {{ required "secretName: name the secret with postgres-url, nats-url and the tokens" .root.Values.secretName | quote }}, key: {{ .key }}}
{{- end }}

{{/* The variables of one service. */}}
{{- define "holdfast.env" -}}
{{- $name := .root.Release.Name -}}
- {name: HOLDFAST_{{ upper .service }}_LISTEN, value: "0.0.0.0:{{ include "holdfast.port" .service }}"}
- {name: HOLDFAST_SHUTDOWN_GRACE, value: "{{ .root.Values.shutdownGrace }}s"}
- {name: HOLDFAST_LOG_FORMAT, value: json}
{{- with .root.Values.otlpEndpoint }}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ quote . }}}
{{- end }}
{{- if .root.Values.metrics.enabled }}
- {name: HOLDFAST_METRICS_LISTEN, value: "0.0.0.0:9464"}
{{- end }}
{{- if ne .service "gateway" }}
- {name: HOLDFAST_INTERNAL_TOKENS, value: /secrets/tokens}
{{- end }}
{{- if or (eq .service "state") (eq .service "stream") }}
- name: HOLDFAST_GRANT_SECRET
  valueFrom: {secretKeyRef: {{ include "holdfast.secret" (dict "root" .root "key" "grant-secret") }}}
{{- else }}
- name: HOLDFAST_INTERNAL_TOKEN
  valueFrom: {secretKeyRef: {{ include "holdfast.secret" (dict "root" .root "key" (printf "%s-token" .service)) }}}
- {name: HOLDFAST_{{ upper .service }}_STATE_ADDRESS, value: "{{ $name }}-state:7411"}
- {name: HOLDFAST_{{ upper .service }}_STREAM_ADDRESS, value: "{{ $name }}-stream:7412"}
{{- end }}
{{- if eq .service "state" }}
- {name: HOLDFAST_STATE_STORE, value: postgres}
- name: HOLDFAST_STATE_POSTGRES_URL
  valueFrom: {secretKeyRef: {{ include "holdfast.secret" (dict "root" .root "key" "postgres-url") }}}
{{- else if eq .service "stream" }}
- {name: HOLDFAST_STREAM_BUS, value: nats}
- {name: HOLDFAST_STREAM_REPLICAS, value: "{{ .root.Values.natsReplicas }}"}
- name: HOLDFAST_STREAM_NATS_URL
  valueFrom: {secretKeyRef: {{ include "holdfast.secret" (dict "root" .root "key" "nats-url") }}}
{{- else if eq .service "executor" }}
- {name: HOLDFAST_EXECUTOR_AGENTS, value: /agents}
{{- else }}
- {name: HOLDFAST_GATEWAY_EXECUTOR_ADDRESSES, value: "{{ $name }}-executor:7413"}
- {name: HOLDFAST_GATEWAY_API_KEYS, value: /secrets/api-keys.yaml}
{{- end }}
{{- range $key, $value := .values.env }}
- {name: {{ $key }}, value: {{ quote $value }}}
{{- end }}
{{- end }}
