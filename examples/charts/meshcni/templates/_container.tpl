{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* meshcni.capabilities are those that the values in effect ask for. */ -}}
{{- define "meshcni.capabilities" -}}
{{- $all := list -}}
{{- if .tryKernel -}}
{{- $all = list "SYS_ADMIN" "NET_ADMIN" -}}
{{- end -}}
{{- if include "meshcni.repairsInPlace" . -}}
{{- $all = list "SYS_ADMIN" "NET_ADMIN" "SYS_PTRACE" -}}
{{- end -}}
{{- if include "meshcni.ambient" . -}}
{{- $all = list "SYS_ADMIN" "NET_ADMIN" "SYS_PTRACE" "NET_BROADCAST" -}}
{{- end -}}
{{- if eq (include "meshcni.ambientMode" .) "node" -}}
{{- $all = append $all "NET_RAW" -}}
{{- end -}}
{{- concat $all (.capabilities | default list) | uniq | toYaml -}}
{{- end -}}

{{- /* meshcni.repairsInPlace is not empty if the values in effect have pods repaired in place. */ -}}
{{- define "meshcni.repairsInPlace" -}}
{{- if and .repairInPlace .watchPods (ne (toString (get (.settings | default dict) "repairEnabled")) "false") -}}
true
{{- end -}}
{{- end -}}

{{- /* meshcni.ambient is not empty if the values in effect turn ambient mode on. */ -}}
{{- define "meshcni.ambient" -}}
{{- if eq (toString (get (.settings | default dict) "ambientEnabled")) "true" -}}
true
{{- end -}}
{{- end -}}

{{- /* meshcni.ambientMode is where the values in effect have pods captured in ambient mode: in-pod or node; empty if it is off. */ -}}
{{- define "meshcni.ambientMode" -}}
{{- if include "meshcni.ambient" . -}}
{{- $set := dig "settings" "ambientMode" "" . -}}
{{- $set | default (dig "ambient" "mode" "" .) | default "in-pod" -}}
{{- end -}}
{{- end -}}

{{- /* meshcni.looksIntoPods is not empty if the values in effect have the daemon enter its node's pods. */ -}}
{{- define "meshcni.looksIntoPods" -}}
{{- if or (include "meshcni.repairsInPlace" .) (include "meshcni.ambient" .) -}}
true
{{- end -}}
{{- end -}}

{{- /*
meshcni.appArmorProfile is the container's AppArmor profile as YAML, given the values in effect; {} if there is none. The runtime's profile denies
ptrace of the node's process 1, whose network namespace tells the node's from the pods', whatever the capabilities.
*/ -}}
{{- define "meshcni.appArmorProfile" -}}
{{- $profile := dict -}}
{{- if kindIs "map" .appArmorProfile -}}
{{- $profile = .appArmorProfile -}}
{{- else if include "meshcni.looksIntoPods" . -}}
{{- $profile = dict "type" "Unconfined" -}}
{{- end -}}
{{- toYaml $profile -}}
{{- end -}}

{{- /* meshcni.appArmorText is an AppArmor profile as the annotation of Kubernetes before 1.30 has it. */ -}}
{{- define "meshcni.appArmorText" -}}
{{- if eq .type "Localhost" -}}
localhost/{{ .localhostProfile }}
{{- else -}}
{{- get (dict "Unconfined" "unconfined" "RuntimeDefault" "runtime/default") .type -}}
{{- end -}}
{{- end -}}

{{- /* meshcni.proxyDirectory is the directory of the socket at which the node's proxy finds the daemon, given the values in effect. */ -}}
{{- define "meshcni.proxyDirectory" -}}
{{- dir (dig "settings" "ztunnelUdsAddress" "" . | default "/var/run/ztunnel/ztunnel.sock") -}}
{{- end -}}

{{- /* meshcni.env is the container's environment: who it is, and the settings that take effect with a start. */ -}}
{{- define "meshcni.env" -}}
{{- $values := .values -}}
{{- $own := dict "AGENT_NAME" (printf "%s-node" (include "meshcni.name" .root)) "HEALTH_ADDRESS" (printf ":%d" (int $values.healthPort)) -}}
{{- $_ := set $own "MONITORING_PORT" (int $values.monitoringPort | toString) -}}
{{- $_ := set $own "CNI_NET_DIR" $values.cniConfDir -}}
{{- if eq (include "meshcni.watchesInstallation" .root) "true" -}}
{{- $_ := set $own "INSTALLATION_CONFIG_MAP" (printf "%s-installed" (include "meshcni.name" .root)) -}}
{{- end -}}
{{- if include "meshcni.repairsInPlace" $values -}}
{{- $_ := set $own "REPAIR_REPAIR_PODS" "true" -}}
{{- end -}}
{{- if include "meshcni.ambient" $values -}}
{{- $_ := set $own "AMBIENT_DNS_CAPTURE" (eq (include "meshcni.ambientMode" $values) "in-pod" | toString) -}}
{{- range $value, $name := dict "mode" "AMBIENT_MODE" "way" "AMBIENT_WAY" -}}
{{- with dig "ambient" $value "" $values -}}
{{- $_ := set $own $name . -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if include "meshcni.looksIntoPods" $values -}}
{{- $_ := set $own "MOUNTED_PROC_DIR" "/host/proc" -}}
{{- $_ := set $own "MOUNTED_NETNS_DIRS" "/host/var/run/netns" -}}
{{- end -}}
{{- range include "meshcni.settings" .root | fromYamlArray -}}
{{- if not .live -}}
{{- $_ := set $own .env .text -}}
{{- end -}}
{{- end -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- if $values.watchPods }}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- end }}
{{- range $name, $text := merge $own ($values.env | default dict) }}
- {name: {{ $name }}, value: {{ toString $text | quote }}}
{{- end }}
{{- end -}}

{{- /* meshcni.watchesInstallation says whether the daemons watch the object that only the end of the installation removes. */ -}}
{{- define "meshcni.watchesInstallation" -}}
{{- $values := include "meshcni.values" . | fromYaml -}}
{{- and $values.watchPods (ne (toString (get ($values.settings | default dict) "uninstallOnDeletion")) "false") -}}
{{- end -}}
