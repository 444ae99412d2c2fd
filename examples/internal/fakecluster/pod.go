// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"fmt"
	"strings"
)

// Pod is a pod of a cluster.
type Pod struct {
	Namespace, Name, UID, Node string
	// Annotations are beside those that every pod here has.
	Annotations map[string]string
}

// padding is about what managed fields and the rest of a status are in a real pod.
const padding = 6 << 10

// json is the pod as the API server writes it: with an injected sidecar, and about 8 KiB large.
func (p Pod) json(version int) string {
	annotations := strings.Builder{}
	for key, value := range p.Annotations {
		fmt.Fprintf(&annotations, ",%q:%q", key, value)
	}
	return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":"%d",`+
		`"labels":{"app":%[1]q,"security.istio.io/tlsMode":"istio"},`+
		`"annotations":{"sidecar.istio.io/status":"{\"initContainers\":null,\"containers\":[\"istio-proxy\"]}"%[5]s},`+
		`"managedFields":[{"manager":"kubelet","fieldsV1":{"f:padding":%[6]q}}]},`+
		`"spec":{"nodeName":%[7]q,"securityContext":{"fsGroup":1337},`+
		`"containers":[{"name":"app","image":"example.com/app:1","args":["serve"],"env":[{"name":"PORT","value":"8080"}]},`+
		`{"name":"istio-proxy","image":"example.com/proxy:1","args":["proxy","sidecar","--domain","svc.cluster.local"],`+
		`"env":[{"name":"ISTIO_META_DNS_CAPTURE","value":"true"},{"name":"POD_IP","valueFrom":{"fieldRef":{"fieldPath":"status.podIP"}}}],`+
		`"securityContext":{"runAsUser":1337,"runAsGroup":1337}}]},"status":{"phase":"Running"}}`,
		p.Name, p.Namespace, p.UID, version, annotations.String(), strings.Repeat("x", padding), p.Node)
}
