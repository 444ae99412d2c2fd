{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* meshcni.values are the values in effect, as YAML: those given, Istio's among them by our names, over the platform's, over the default. */ -}}
{{- define "meshcni.values" -}}
{{- $given := deepCopy .Values -}}
{{- $given = mergeOverwrite (omit $given "cni") ($given.cni | default dict) -}}
{{- include "meshcni.dropNulls" $given -}}
{{- range list "cniBinDir" "cniConfDir" "cniNetnsDir" "resourceScope" -}}
{{- if eq (get $given . | toString) "" -}}
{{- $_ := unset $given . -}}
{{- end -}}
{{- end -}}
{{- $problems := list -}}
{{- $platform := $given.platform | default (dig "global" "platform" "" $given) -}}
{{- $profile := dict -}}
{{- with $platform -}}
{{- $file := $.Files.Get (printf "platforms/%s.yaml" .) -}}
{{- if $file -}}
{{- $profile = $file | fromYaml -}}
{{- else -}}
{{- $problems = append $problems (printf "platform: there is no %q; it is one of bottlerocket, gke, k3d, k3s, microk8s, minikube, openshift, talos" .) -}}
{{- end -}}
{{- end -}}
{{- range $row := .Files.Get "istio-values.yaml" | fromYamlArray -}}
{{- $found := include "meshcni.lookup" (dict "in" $given "path" $row.value) | fromYaml -}}
{{- if and (hasKey $found "value") (not (has $found.value ($row.unless | default list))) -}}
{{- $matches := and $row.when (eq (toString $found.value) (toString $row.when)) -}}
{{- if and $row.refused (not $matches) -}}
{{- $problems = append $problems (printf "%s: %s" $row.value $row.refused) -}}
{{- else if and $row.with (not (include "meshcni.lookup" (dict "in" $given "path" $row.with) | fromYaml).value) -}}
{{- else if $row.becomes -}}
{{- $there := include "meshcni.lookup" (dict "in" $given "path" $row.becomes) | fromYaml -}}
{{- if $matches -}}
{{- $_ := set $found "value" $row.as -}}
{{- end -}}
{{- if and (or $matches (hasPrefix "global." $row.value)) (or $there.value (kindIs "bool" $there.value)) -}}
{{- else if and (hasPrefix "settings." $row.becomes) (hasKey $there "value") (ne (toJson $there.value) (toJson $found.value)) -}}
{{- $problems = append $problems (printf "%s and %s are the same, and differ: leave one of them out" $row.value $row.becomes) -}}
{{- else -}}
{{- include "meshcni.put" (dict "in" $given "path" $row.becomes "value" $found.value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq ($given.image | toString) "install-cni" -}}
{{- $_ := unset $given "image" -}}
{{- end -}}
{{- if and $given.image (not (contains "/" $given.image)) -}}
{{- $problems = append $problems (printf "image: %q names no registry; give the image in full" $given.image) -}}
{{- end -}}
{{- if not (has ($given.resourceScope | default "all") (list "all" "cluster" "namespace")) -}}
{{- $problems = append $problems (printf "global.resourceScope: there is no %q; it is all, cluster or namespace" $given.resourceScope) -}}
{{- end -}}
{{- $problems = concat $problems (include "meshcni.contradictions" $given | fromYamlArray) -}}
{{- with $problems -}}
{{- fail (printf "\n\n  %s\n" (join "\n  " .)) -}}
{{- end -}}
{{- mergeOverwrite (.Files.Get "platforms/default.yaml" | fromYaml) $profile $given | toYaml -}}
{{- end -}}

{{- /* meshcni.dropNulls takes keys without a value out of a dictionary: they are the platform's. */ -}}
{{- define "meshcni.dropNulls" -}}
{{- range $key, $value := . -}}
{{- if kindIs "map" $value -}}
{{- include "meshcni.dropNulls" $value -}}
{{- else if kindIs "invalid" $value -}}
{{- $_ := unset $ $key -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* meshcni.lookup finds what is at a path with dots, and is {value: ...}, or {} if nothing is there. */ -}}
{{- define "meshcni.lookup" -}}
{{- $at := dict "value" .in -}}
{{- range splitList "." .path -}}
{{- if and (kindIs "map" $at.value) (hasKey ($at.value | default dict) .) -}}
{{- $_ := set $at "value" (get $at.value .) -}}
{{- else -}}
{{- $_ := set $at "value" nil -}}
{{- end -}}
{{- end -}}
{{- if kindIs "invalid" $at.value }}{}{{ else }}{{ toYaml $at }}{{ end -}}
{{- end -}}

{{- /* meshcni.put sets what is at a path with dots. */ -}}
{{- define "meshcni.put" -}}
{{- $words := splitList "." .path -}}
{{- $at := dict "map" .in -}}
{{- range initial $words -}}
{{- if not (kindIs "map" (get $at.map .)) -}}
{{- $_ := set $at.map . dict -}}
{{- end -}}
{{- $_ := set $at "map" (get $at.map .) -}}
{{- end -}}
{{- $_ := set $at.map (last $words) .value -}}
{{- end -}}

{{- /* meshcni.settings are the settings that were given, as rows {name, env, live, text}. The table settings.yaml has their names. */ -}}
{{- define "meshcni.settings" -}}
{{- $values := include "meshcni.values" . | fromYaml -}}
{{- $rows := list -}}
{{- range $row := .Files.Get "settings.yaml" | fromYamlArray -}}
{{- if hasKey ($values.settings | default dict) $row.key -}}
{{- $value := get $values.settings $row.key -}}
{{- $text := kindIs "slice" $value | ternary (join "," $value) (toString $value) -}}
{{- if and (kindIs "slice" $value) (kindIs "map" (first $value)) -}}
{{- $text = toJson $value -}}
{{- end -}}
{{- if has (kindOf $value) (list "float64" "int" "int64") -}}
{{- $text = int64 $value | toString -}}
{{- end -}}
{{- $rows = append $rows (dict "name" $row.name "env" $row.env "live" $row.live "text" $text) -}}
{{- end -}}
{{- end -}}
{{- toYaml $rows -}}
{{- end -}}
