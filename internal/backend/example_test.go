// SPDX-License-Identifier: Apache-2.0

package backend_test

import (
	"context"
	"fmt"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/backend"
)

func Example() {
	d := &backend.Dataplane{} // its functions are never called
	standIn := interception.StandInNetns("pod", interception.NetnsID{Inode: 1})
	fmt.Println(d.Remove(context.Background(), standIn, "my-mesh"))
	// Output:
	// remove plan of my-mesh: pod (stands in for net:[1]): not a network namespace; open one with interception.OpenNetns
}
