{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* meshcni.name is what all names begin with. They are those of Istio's chart, so that its release can be upgraded to this one. */ -}}
{{- define "meshcni.name" -}}
istio-cni{{ with .Values.revision }}-{{ . }}{{ end }}
{{- end -}}

{{- define "meshcni.labels" -}}
app.kubernetes.io/name: {{ include "meshcni.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: meshcni
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- /* meshcni.podLabels are those that don't change from version to version: a pod's can't without a new pod. */ -}}
{{- define "meshcni.podLabels" -}}
# The daemon is not part of the mesh that it serves.
sidecar.istio.io/inject: "false"
istio.io/dataplane-mode: none
app.kubernetes.io/name: {{ include "meshcni.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: meshcni
{{- end -}}

{{- /* meshcni.image is the image, given the values in effect. */ -}}
{{- define "meshcni.image" -}}
{{- .values.image | default (printf "ghcr.io/meshcni/install-cni:%s" .chart.AppVersion) -}}
{{- end -}}
