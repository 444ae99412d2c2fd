// SPDX-License-Identifier: Apache-2.0

package podnews_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/examples/internal/podnews"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
)

func TestOf(t *testing.T) {
	t.Parallel()
	ref := podsource.Ref{Namespace: "shop", Name: "web-0", UID: "7f0b"}
	small := interception.Pod{Namespace: "shop", Name: "web-0", UID: "7f0b", Annotations: map[string]string{"note": "x"}}
	large := small
	large.Annotations = map[string]string{"note": strings.Repeat("x", podnews.MaxPod)}
	gone := podnews.News{Gone: &podsource.Ref{Namespace: "shop", Name: "web-0"}}
	for name, test := range map[string]struct {
		pod  *interception.Pod
		want podnews.News
	}{
		"known":     {&small, podnews.News{Pod: &small}},
		"gone":      {nil, gone},
		"too large": {&large, gone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			news, err := podnews.Of(ref, test.pod)
			if err != nil {
				t.Fatal(err)
			}
			line, err := json.Marshal(news)
			if err != nil {
				t.Fatal(err)
			}
			var got podnews.News
			if err := json.Unmarshal(line, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("after a round trip (-want +got):\n%s", diff)
			}
		})
	}
}

func ExampleOf() {
	news, err := podnews.Of(podsource.Ref{Namespace: "shop", Name: "web-0"}, &interception.Pod{Namespace: "shop", Name: "web-0", UID: "7f0b"})
	line, _ := json.Marshal(news)
	fmt.Println(string(line), err)
	// Output: {"pod":{"namespace":"shop","name":"web-0","uid":"7f0b"}} <nil>
}
