// SPDX-License-Identifier: Apache-2.0

package nodepods_test

import (
	"encoding/json"
	"testing"

	"github.com/meshcni/meshcni/internal/nodepods"
)

// TestPodHasItsAccount checks that the account by which a proxy knows the pod is decoded.
func TestPodHasItsAccount(t *testing.T) {
	t.Parallel()
	var object nodepods.Object
	text := `{"metadata": {"namespace": "shop", "name": "web-0"}, "spec": {"serviceAccountName": "web", "nodeName": "a"}}`
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	if got := object.Pod(); got.ServiceAccount != "web" || got.Namespace != "shop" || got.Name != "web-0" {
		t.Errorf("got %+v", got)
	}
}
