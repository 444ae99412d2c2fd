// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"encoding/json"

	"github.com/meshcni/meshcni/internal/jsonreader"
)

// parseObject reads what json.Unmarshal would, and where it is unusual, by that.
func parseObject(text []byte) (object, error) {
	var o object
	if jsonreader.Read(text, o.read) {
		return o, nil
	}
	o = object{}
	err := json.Unmarshal(text, &o)
	return o, err
}

func (o *object) read(r *jsonreader.Reader) {
	r.Object(
		jsonreader.Member{Name: "apiVersion", To: &o.APIVersion}, jsonreader.Member{Name: "kind", To: &o.Kind},
		jsonreader.Member{Name: "metadata", To: o.Metadata.read}, jsonreader.Member{Name: "spec", To: o.Spec.read},
	)
}

func (m *metadata) read(r *jsonreader.Reader) {
	r.Object(
		jsonreader.Member{Name: "namespace", To: &m.Namespace}, jsonreader.Member{Name: "name", To: &m.Name},
		jsonreader.Member{Name: "uid", To: &m.UID}, jsonreader.Member{Name: "labels", To: &m.Labels},
		jsonreader.Member{Name: "annotations", To: &m.Annotations},
	)
}

func (s *spec) read(r *jsonreader.Reader) {
	r.Object(
		jsonreader.Member{Name: "hostNetwork", To: &s.HostNetwork},
		jsonreader.Member{Name: "securityContext", To: func(r *jsonreader.Reader) { s.SecurityContext = readSecurityContext(r) }},
		jsonreader.Member{Name: "initContainers", To: func(r *jsonreader.Reader) { s.InitContainers = readContainers(r) }},
		jsonreader.Member{Name: "containers", To: func(r *jsonreader.Reader) { s.Containers = readContainers(r) }},
	)
}

func readContainers(r *jsonreader.Reader) []container {
	containers := []container{}
	r.List(func() {
		var c container
		r.Object(
			jsonreader.Member{Name: "name", To: &c.Name}, jsonreader.Member{Name: "args", To: &c.Args},
			jsonreader.Member{Name: "env", To: c.readVariables}, jsonreader.Member{Name: "restartPolicy", To: &c.RestartPolicy},
			jsonreader.Member{Name: "securityContext", To: func(r *jsonreader.Reader) { c.SecurityContext = readSecurityContext(r) }},
		)
		containers = append(containers, c)
	})
	return containers
}

func (c *container) readVariables(r *jsonreader.Reader) {
	c.Env = []variable{}
	r.List(func() {
		var v variable
		r.Object(jsonreader.Member{Name: "name", To: &v.Name}, jsonreader.Member{Name: "value", To: &v.Value})
		c.Env = append(c.Env, v)
	})
}

func readSecurityContext(r *jsonreader.Reader) *securityContext {
	var s securityContext
	r.Object(jsonreader.Member{Name: "runAsUser", To: &s.RunAsUser}, jsonreader.Member{Name: "runAsGroup", To: &s.RunAsGroup})
	return &s
}
