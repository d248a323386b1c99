{{- define "ostler.image" -}}
{{ .image.repository }}:{{ .image.tag | default .chart.AppVersion }}
{{- end }}

{{/* The drivers with a mode, by name, as JSON. */}}
{{- define "ostler.drivers" -}}
{{- $found := dict }}
{{- range $name, $driver := .drivers }}
{{- if eq ($driver.mode | default "sidecar") $.mode }}{{ $_ := set $found $name $driver }}{{ end }}
{{- end }}
{{- toJson $found }}
{{- end }}

{{/* A process that was taken over has nothing to climb with. */}}
{{- define "ostler.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* The adapter of a unary driver, and the driver: each is a user of its own, and they share the directory of a socket. */}}
{{- define "ostler.unary" -}}
- name: {{ .name }}-adapter
  image: {{ .adapter }}
  args:
  {{- range .args }}
  - {{ . }}
  {{- end }}
  - --socket=/run/driver/driver/driver.sock
  # Another user who listens there gets no secret.
  - --driver-uid={{ add .user 1 }}
  {{- if or .env .otlp }}
  env:
    {{- with .env }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with .otlp }}
    - {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ quote . }}}
    {{- end }}
  {{- end }}
  resources:
    requests: {cpu: 10m, memory: 16Mi}
    limits: {memory: 128Mi}
  securityContext:
    runAsUser: {{ .user }}
    runAsGroup: {{ .user }}
    {{- include "ostler.restricted" . | nindent 4 }}
  volumeMounts:
  {{- .mounts | nindent 2 }}
  - {name: {{ .name }}-socket, mountPath: /run/driver}
- name: {{ .name }}
  image: {{ .driver.image }}
  {{- with .driver.args }}
  args:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  env:
  - {name: OSTLER_DRIVER_SOCKET, value: /run/driver/driver/driver.sock}
  {{- with .otlp }}
  - {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ quote . }}}
  {{- end }}
  {{- with .driver.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .driver.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsUser: {{ add .user 1 }}
    runAsGroup: {{ add .user 1 }}
    {{- include "ostler.restricted" . | nindent 4 }}
  volumeMounts:
  - {name: {{ .name }}-socket, mountPath: /run/driver}
  {{- with .driver.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Where a driver that shares no pod with the core finds it, and what it shows. */}}
{{- define "ostler.endpoint" -}}
- {name: OSTLER_ENDPOINT, value: "https://{{ .Release.Name }}.{{ .Release.Namespace }}.svc:{{ .Values.driversListen.port }}"}
- {name: OSTLER_TOKEN_FILE, value: /var/run/ostler/token}
- {name: OSTLER_CA_FILE, value: /var/run/ostler-ca/ca.crt}
# A little less than the pod is given.
- {name: OSTLER_DRAIN_TIMEOUT, value: 290s}
{{- end }}
