// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/meshcni/meshcni/examples/install-cni/internal/dataplane"
	"github.com/meshcni/meshcni/examples/internal/istiomesh"
	"github.com/meshcni/meshcni/interception"
)

// A daemon that may not create namespaces leaves the choice to the plugin.
func ExampleChooser_Choose() {
	chooser := dataplane.New(dataplane.Options{
		Mesh:    istiomesh.Mesh(),
		Scratch: func() (*interception.Netns, error) { return nil, fs.ErrPermission },
	})
	fmt.Printf("%+v\n", chooser.Choose(context.Background(), "auto"))
	// Output: {Setting:auto IPTables:false}
}
