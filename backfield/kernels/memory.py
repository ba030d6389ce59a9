"""Pieces of large arrays for kernels that make many short loops over them.

A slice is checked against the ends of its array and counts references: 100 ns for a loop over five of them, as much as a
few hundred messages cost. ``piece`` is an address and a length.

Clear the numba cache after an edit here (see ``compile``).
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array


@intrinsic  # type: ignore[misc]
def _piece(typing_context: Any, array: Any, start: Any, size: Any) -> Any:
    """Return ``size`` numbers of a contiguous array, counted flat from ``start``; the array must outlive it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source = context.make_array(signature.args[0])(context, builder, args[0])
        number = context.get_data_type(signature.return_type.dtype)
        bytes_each = context.get_constant(types.intp, context.get_abi_sizeof(number))
        out = context.make_array(signature.return_type)(context, builder)
        data = builder.gep(source.data, [args[1]])
        populate_array(out, data=data, shape=[args[2]], strides=[bytes_each], itemsize=bytes_each, meminfo=None)
        return out._getvalue()

    return types.Array(array.dtype, 1, "C")(array, types.intp, types.intp), codegen


piece: Any = _piece
