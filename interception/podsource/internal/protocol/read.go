// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/jsonreader"
)

// Read reads the answer, as far as it is usual.
func (a *PodAnswer) Read(r *jsonreader.Reader) {
	r.Object(jsonreader.Member{Name: "pod", To: func(r *jsonreader.Reader) {
		a.Pod = new(interception.Pod)
		readPod(r, a.Pod)
	}})
}

// Read reads the answer, as far as it is usual.
func (a *ResultsAnswer) Read(r *jsonreader.Reader) {
	var entries int64
	r.Object(jsonreader.Member{Name: "entries", To: &entries})
	a.Entries = int(entries)
}

func readPod(r *jsonreader.Reader, p *interception.Pod) {
	r.Object(
		jsonreader.Member{Name: "namespace", To: &p.Namespace}, jsonreader.Member{Name: "name", To: &p.Name},
		jsonreader.Member{Name: "uid", To: &p.UID}, jsonreader.Member{Name: "labels", To: &p.Labels},
		jsonreader.Member{Name: "annotations", To: &p.Annotations}, jsonreader.Member{Name: "hostNetwork", To: &p.HostNetwork},
		jsonreader.Member{Name: "runAsUser", To: &p.RunAsUser}, jsonreader.Member{Name: "runAsGroup", To: &p.RunAsGroup},
		jsonreader.Member{Name: "containers", To: func(r *jsonreader.Reader) {
			p.Containers = []interception.Container{}
			r.List(func() { p.Containers = append(p.Containers, readContainer(r)) })
		}},
	)
}

func readContainer(r *jsonreader.Reader) interception.Container {
	var c interception.Container
	r.Object(
		jsonreader.Member{Name: "name", To: &c.Name}, jsonreader.Member{Name: "init", To: &c.Init},
		jsonreader.Member{Name: "restartPolicy", To: &c.RestartPolicy}, jsonreader.Member{Name: "args", To: &c.Args},
		jsonreader.Member{Name: "env", To: &c.Env}, jsonreader.Member{Name: "runAsUser", To: &c.RunAsUser},
		jsonreader.Member{Name: "runAsGroup", To: &c.RunAsGroup},
	)
	return c
}
