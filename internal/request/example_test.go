// SPDX-License-Identifier: Apache-2.0

package request_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/request"
)

func Example() {
	remove := func(context.Context, *interception.Netns, interception.Owner) error {
		return errors.New("is never called")
	}
	standIn := interception.StandInNetns("pod", interception.NetnsID{Inode: 1})
	fmt.Println(request.Remove(context.Background(), standIn, "my-mesh", remove))
	// Output:
	// remove plan of my-mesh: pod (stands in for net:[1]): not a network namespace; open one with interception.OpenNetns
}
