// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"github.com/meshcni/meshcni/interception/podsource/internal/protocol"
	"github.com/meshcni/meshcni/internal/jsonreader"
)

// usualAnswers are read without encoding/json: a pod as the API server writes it, and the agent's answers.
func usualAnswers() []string {
	return []string{
		`{"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "web-0", "uid": "1", "creationTimestamp": null,
			"labels": {"app": "web"}, "annotations": {"sidecar.istio.io/status": "{\"initContainers\":[\"istio-init\"]}", "a": "\u003c&\t\u2028é"}},
		  "spec": {"hostNetwork": true, "securityContext": {"runAsUser": 1000, "fsGroup": 1337}, "volumes": [{"name": "x", "projected": {"defaultMode": 420}}],
			"initContainers": [{"name": "istio-proxy", "restartPolicy": "Always", "args": ["proxy", "sidecar"], "resources": {"limits": {"cpu": "2"}},
			  "env": [{"name": "A", "value": "b"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
			  "securityContext": {"runAsUser": 1337, "runAsGroup": 1337, "capabilities": {"drop": ["ALL"]}}}],
			"containers": []}, "status": {"phase": "Pending", "containerStatuses": null}}`,
		`{"pod":{"namespace":"shop","name":"web-0","uid":"1","labels":{},"annotations":{"a":"b"},"hostNetwork":false,"runAsUser":0,"runAsGroup":7,
		  "containers":[{"name":"x","init":true,"restartPolicy":"Always","args":["a"],"env":{"A":""},"runAsUser":1,"runAsGroup":2},{}]}}`,
		`{"entries":3}`, `{"entries":0,"more":[1]}`,
	}
}

// same compares what jsonreader makes of a text with what encoding/json does, and reports whether it understood it.
func same[T any](t *testing.T, text []byte, read func(*T) func(*jsonreader.Reader)) bool {
	t.Helper()
	var got, want T
	if !jsonreader.Read(text, read(&got)) {
		return false
	}
	if err := json.Unmarshal(text, &want); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s\ngot  %+v\nwant %+v, %v", text, got, want, err)
	}
	return true
}

func sameAnswers(t *testing.T, text []byte) bool {
	t.Helper()
	all := same(t, text, func(o *object) func(*jsonreader.Reader) { return o.read })
	all = same(t, text, func(a *protocol.PodAnswer) func(*jsonreader.Reader) { return a.Read }) && all
	all = same(t, text, func(a *protocol.ResultsAnswer) func(*jsonreader.Reader) { return a.Read }) && all
	return all
}

func TestUsualAnswersAreReadWithoutReflection(t *testing.T) {
	t.Parallel()
	for _, text := range usualAnswers() {
		if !sameAnswers(t, []byte(text)) {
			t.Errorf("%s is left to encoding/json", text)
		}
	}
}

func TestInjectedPodIsReadWithoutReflection(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/injected.json")
	if err != nil {
		t.Fatal(err)
	}
	if !sameAnswers(t, text) {
		t.Error("it is left to encoding/json")
	}
}

func FuzzAnswers(f *testing.F) {
	for _, text := range usualAnswers() {
		f.Add([]byte(text))
	}
	f.Add([]byte(`{"metadata": {"name": "a", "Name": "b"}, "spec": {"containers": [{"name": "a"}], "containers": [{}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) { sameAnswers(t, text) })
}
